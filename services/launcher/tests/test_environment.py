from cascade_launcher.backends.protocol import Launch
from cascade_launcher.environment import contract, inherited

LAUNCH = Launch(
    sim_id="sim-6b4c91e71437",
    run_id="run-9f56e171af08",
    trace_id="demo",
    gpu_config="SM90_H100",
    replica=3,
    attempt="0123456789ab",
)


def test_a_sim_gets_exactly_the_contract() -> None:
    assert contract(
        LAUNCH, main_url="http://app:8000/", token="t", trace_dir="/data/x", accelsim_dir="/opt/accel-sim"
    ) == {
        "CASCADE_SIM_ID": "sim-6b4c91e71437",
        "CASCADE_MAIN_URL": "http://app:8000",
        "CASCADE_TOKEN": "t",
        "CASCADE_GPU_CONFIG": "SM90_H100",
        "CASCADE_TRACE_DIR": "/data/x",
        "CASCADE_ACCELSIM_DIR": "/opt/accel-sim",
        "CASCADE_ATTEMPT": "0123456789ab",
    }


def test_no_secret_of_the_launcher_reaches_a_sim() -> None:
    secrets = {
        "CASCADE_DATABASE_URL": "postgresql://u:p@h/db",
        "CASCADE_NATS_URL": "nats://u:p@h",
        "CASCADE_NATS_PASSWORD": "p",
        "CASCADE_S3_SECRET_KEY": "s",
        "CASCADE_S3_ACCESS_KEY": "s",
        "CASCADE_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SESSION_TOKEN": "s",
        "SAIL_API_KEY": "s",
        "MODAL_TOKEN_SECRET": "s",
        "PGPASSWORD": "s",
        "GITHUB_TOKEN": "s",
        "HTTP_PROXY": "http://user:word@proxy:3128",
    }
    assert inherited(secrets) == {}


def test_a_sim_keeps_the_users_own_environment() -> None:
    plain = {
        "PATH": "/usr/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "GPGPUSIM_ROOT": "/opt/gpgpu-sim",
        "CASCADE_HEARTBEAT_INTERVAL_S": "1",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    assert inherited(plain) == plain
