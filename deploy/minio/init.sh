#!/bin/sh
# One S3 user for each role, with that role's policy and no more. Safe to rerun: a changed secret or policy replaces
# the old one. The store's address and root login come in MC_HOST_cascade, the secrets in the environment, never as
# arguments, which every process of the host could read.
set -eu

role() {
    name=$1
    secret=$2
    mc admin policy create cascade "cascade-$name" "/cascade/policies/$name.json"
    printf '%s\n%s\n' "$name" "$secret" | mc admin user add cascade
    # To attach what is attached already is an error. The image has a shell and mc, and no grep.
    case $(mc admin policy entities cascade --user "$name") in
    *"cascade-$name"*) ;;
    *) mc admin policy attach cascade "cascade-$name" --user "$name" ;;
    esac
}

mc ready cascade
role api "$CASCADE_S3_API_SECRET"
role ingest "$CASCADE_S3_INGEST_SECRET"
role launcher "$CASCADE_S3_LAUNCHER_SECRET"
role requestsim "$CASCADE_S3_REQUESTSIM_SECRET"
role profiler "$CASCADE_S3_PROFILER_SECRET"
role samples "$CASCADE_S3_SAMPLES_SECRET"

case ${CASCADE_S3_ANONYMOUS:-0} in
1 | true | yes) mc anonymous set-json /cascade/policies/anonymous.json cascade/cascade ;;
*) mc anonymous set private cascade/cascade ;;
esac
echo "S3 users are in place"
