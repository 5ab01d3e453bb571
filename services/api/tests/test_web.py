"""The dashboard's files: hashed assets for ever, the page for every other path, headers that keep strangers out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cascade_api.testing.client import Client
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import Servers

PAGE = "<!doctype html><title>Cascade</title><script type=module src=/assets/app-1a2b.js></script>"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small build, with something beside it that must stay hidden."""
    beside = tmp_path_factory.mktemp("web")
    (beside / "secret.txt").write_text("secret")
    root = beside / "dist"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text(PAGE)
    (root / "assets" / "app-1a2b.js").write_text("export {};")
    (root / "assets" / "app-1a2b.css").write_text("body{}")
    (root / "favicon.svg").write_text("<svg/>")
    (root / "link").symlink_to(beside / "secret.txt")
    return root


@pytest.fixture(scope="module")
def site(servers: Servers, built: Path) -> Iterator[Client]:
    """A stranger's client of a gateway with that build."""
    with RunningApi(servers.settings(web_dir=built)) as api, Client(api, token=False) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/runs/run-1", "/traces/a.b/c", "/index.html", "/apix", "/api", "/link"]
)
def test_every_other_path_is_the_page_and_never_cached_blindly(path: str, site: Client) -> None:
    reply = site.get(path)
    assert (reply.status_code, reply.text) == (200, PAGE)
    assert reply.headers["content-type"].startswith("text/html")
    assert reply.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(("name", "kind"), [("app-1a2b.js", "text/javascript"), ("app-1a2b.css", "text/css")])
def test_an_asset_is_kept_for_ever(name: str, kind: str, site: Client) -> None:
    reply = site.get(f"/assets/{name}")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(kind)
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_a_missing_asset_is_not_the_page(site: Client) -> None:
    reply = site.get("/assets/app-old.js")
    assert (reply.status_code, reply.json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    "path", ["/%2e%2e/secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt", "/..%2fsecret.txt"]
)
def test_nothing_outside_the_build_is_shown(path: str, site: Client) -> None:
    assert "secret" not in site.get(path).text


@pytest.mark.parametrize("path", ["/", "/assets/app-1a2b.js", "/favicon.svg"])
def test_every_answer_carries_the_security_headers(path: str, site: Client) -> None:
    headers = site.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["connect-src"] == policy["worker-src"] == "'self'"
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]


def test_an_unchanged_file_is_not_sent_again(site: Client) -> None:
    first = site.get("/")
    again = site.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert site.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_head_request_has_the_headers_only(site: Client) -> None:
    reply = site.head("/")
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-length"] == str(len(PAGE))


def test_a_page_takes_no_other_method(site: Client) -> None:
    reply = site.post("/runs")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


def test_without_a_build_a_page_says_how_to_make_one(
    client: Client, tmp_path: Path, servers: Servers
) -> None:
    with RunningApi(servers.settings(web_dir=tmp_path)) as api, Client(api, token=False) as stranger:
        reply = stranger.get("/runs")
        assert reply.status_code == 200
        assert "cascade web build" in reply.text
        (tmp_path / "index.html").write_text(PAGE)
        assert stranger.get("/runs").text == PAGE
