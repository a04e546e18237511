"""Bearer tokens of a provider: which are believed, and what they allow."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.testclient import TestClient

from app.auth import service
from app.auth.oidc import configuration
from app.auth.oidc import provider as providers
from app.auth.oidc.configuration import Wrong, configuration_of
from app.auth.principal import Scope
from app.context import Context
from tests.app.auth.oidc.conftest import PUBLIC_URL, RIGHTS, write_configuration
from tests.app.auth.oidc.provider_of_tests import AUDIENCE, CLIENT_ID, FaultyProvider, new_key, public_jwk
from tests.app.problem_assertions import assert_problem

SELF = "/v1/keys/self"


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Idempotency-Key": token_hex(8)}


def refusal(client: TestClient, token: str, status: int = 401, code: str = "invalid_token") -> str:
    answer = client.get(SELF, headers=with_token(token))
    assert_problem(answer, status, code)
    assert token.rpartition(".")[2] not in answer.text
    return str(answer.json()["detail"])


def test_a_machine_is_its_issuer_and_subject(stranger: TestClient, provider: FaultyProvider, context: Context) -> None:
    first = stranger.get(SELF, headers=with_token(provider.token(email="boss@example.org")))
    assert first.status_code == 200, first.text
    assert first.json()["scopes"] == ["analyst"]
    assert first.json()["budgets"] is None
    assert first.json()["valid_until"] is not None
    # The same subject is the same principal; the same e-mail address is not.
    again = stranger.get(SELF, headers=with_token(provider.token(email="other@example.org")))
    other = stranger.get(SELF, headers=with_token(provider.token(sub="user-2", email="boss@example.org")))
    assert again.json()["id"] == first.json()["id"] != other.json()["id"]
    rows = service.list_keys(context)
    assert {(row.issuer, row.subject, tuple(row.scopes)) for row in rows} == {
        (provider.issuer, "user-1", ()),
        (provider.issuer, "user-2", ()),
    }


def test_the_first_right_that_fits_decides_and_rights_are_not_added_up(
    stranger: TestClient, provider: FaultyProvider
) -> None:
    both = provider.token(groups=["analysts", "officers"])
    assert stranger.get(SELF, headers=with_token(both)).json()["scopes"] == ["admin"]
    robot = provider.token(sub="robot-1", groups=["officers"])
    assert stranger.get(SELF, headers=with_token(robot)).json()["scopes"] == ["metrics"]
    assert stranger.get("/v1/budgets", headers=with_token(robot)).status_code == 403


@pytest.mark.parametrize("groups", [None, [], ["guests"], "guests", {"analysts": True}, [["analysts"]], "analysts "])
def test_nothing_is_allowed_to_whoever_no_right_names(
    stranger: TestClient, provider: FaultyProvider, context: Context, groups: Any
) -> None:
    assert "EPSILOND_OIDC_FILE" in refusal(stranger, provider.token(groups=groups), 403, "no_rights")
    assert service.list_keys(context) == []  # strangers leave no row


def test_a_subject_is_no_group(stranger: TestClient, provider: FaultyProvider) -> None:
    assert "groups" in refusal(stranger, provider.token(sub="analysts", groups=["robot-1"]), 403, "no_rights")


def test_a_token_that_is_not_right_is_refused_with_the_reason(stranger: TestClient, provider: FaultyProvider) -> None:
    now = int(time.time())
    for changed, reason in (
        ({"aud": CLIENT_ID}, "another audience"),
        ({"aud": [AUDIENCE, CLIENT_ID]}, "the client that signs people in"),
        ({"aud": None}, "a claim is missing"),
        ({"aud": ["https://other.example"]}, "another audience"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": provider.issuer + "/"}, "another issuer"),
        ({"exp": now - 1}, "it has expired"),
        ({"exp": None}, "a claim is missing"),
        ({"iat": now + 3600}, "not valid yet"),
        ({"nbf": now + 3600}, "not valid yet"),
        ({"sub": None}, "a claim is missing"),
        ({"iat": None}, "a claim is missing"),
        ({"sub": ""}, "the token's subject"),
        ({"sub": "x" * 256}, "the token's subject"),
        ({"sub": "a\nb"}, "the token's subject"),
    ):
        assert reason in refusal(stranger, provider.token(**changed)), changed
    assert stranger.get(SELF, headers=with_token(provider.token(aud=["x", AUDIENCE]))).status_code == 200


def test_an_end_that_no_calendar_has_is_an_end(stranger: TestClient, provider: FaultyProvider) -> None:
    for end in (10**18, 10**30):
        assert stranger.get(SELF, headers=with_token(provider.token(exp=end))).status_code == 200
    for end in ("soon", [1], {"a": 1}, 1e400):
        refusal(stranger, provider.token(exp=end))


def _unsigned(claims: dict[str, Any], header: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    text = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    return f"{text}.{part(sign(text.encode()))}"


def test_signatures_that_anybody_could_make_are_refused(stranger: TestClient, provider: FaultyProvider) -> None:
    claims, key = provider.claims(groups=["officers"]), provider.keys["one"]
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for algorithm in ("none", "None", "HS256", "HS512", "ES256K", "dir", ""):
        for secret in (b"", public, b"one"):
            forged = _unsigned(
                claims,
                {"alg": algorithm, "kid": "one", "typ": "JWT"},
                lambda text, secret=secret: hmac.new(secret, text, hashlib.sha256).digest(),
            )
            refusal(stranger, forged)
    # A key of the sender's own, named as the provider's, in the header, or at an address in the header.
    own = new_key()
    for headers in ({}, {"jwk": public_jwk(own, "one", "RS256")}, {"jku": f"{provider.issuer}/keys"}, {"x5u": "x"}):
        refusal(stranger, jwt.encode(claims, own, "RS256", headers={"kid": "one", **headers}))
    for key_id in ("two", "../keys", "' OR 1=1 --"):
        assert "current key of the provider" in refusal(stranger, jwt.encode(claims, own, "RS256", {"kid": key_id}))
    # Good ones whose text was changed.
    good = provider.token()
    head, body, signature = good.split(".")
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    refusal(stranger, f"{head}.{changed}.{signature}")
    refusal(stranger, f"{head}.{body}.{signature[::-1]}")
    # A critical extension that is not understood (RFC 7515, 4.1.11).
    refusal(stranger, provider.token(headers={"crit": ["x-more"], "x-more": 1}))


def test_a_key_set_with_shared_secrets_or_keys_for_encryption_signs_nothing(
    stranger: TestClient, provider: FaultyProvider
) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    own = new_key()
    provider.key_set = {
        "keys": [
            {"kty": "oct", "kid": "one", "k": secret, "alg": "HS256"},
            {**public_jwk(own, "two", "RS256"), "use": "enc"},
            {**public_jwk(own, "three", "RS256"), "alg": "RS1"},
            "nonsense",
            {"kty": "RSA", "kid": "four", "n": "!", "e": "AQAB"},
        ]
    }
    refusal(stranger, jwt.encode(provider.claims(), b"s" * 32, "HS256", {"kid": "one"}))
    for key_id in ("two", "three", "four"):
        assert "signed" in refusal(stranger, jwt.encode(provider.claims(), own, "RS256", {"kid": key_id}))


def test_a_token_without_a_key_id_needs_a_provider_with_one_key(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    nameless = jwt.encode(provider.claims(), provider.keys["one"], "RS256")
    assert stranger.get(SELF, headers=with_token(nameless)).status_code == 200
    provider.keys["two"] = new_key()
    fresh = providers.provider_of(context)
    assert fresh is not None
    fresh._known = None
    fresh._tried = None
    refusal(stranger, jwt.encode(provider.claims(jti="2"), provider.keys["one"], "RS256"))


def test_rotated_keys_are_fetched_and_unknown_names_do_not_hammer_the_provider(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    clock = [1000.0]
    known = providers.provider_of(context)
    assert known is not None
    known.clock = lambda: clock[0]
    assert stranger.get(SELF, headers=with_token(provider.token())).status_code == 200
    asked = len(provider.asked)
    provider.keys["two"] = new_key()
    for number in range(20):  # names that nobody has: the keys were asked for a moment ago
        refusal(stranger, jwt.encode(provider.claims(), new_key("ES256"), "ES256", {"kid": f"unknown-{number}"}))
    assert len(provider.asked) == asked
    clock[0] += providers.ASKED_AGAIN_AFTER_S
    assert stranger.get(SELF, headers=with_token(provider.token(jti="3"))).status_code == 200
    # A key that the provider no longer has is not believed for longer than what is fresh.
    old = jwt.encode(provider.claims(jti="4"), provider.keys.pop("one"), "RS256", {"kid": "one"})
    clock[0] += providers.FRESH_S
    refusal(stranger, old)


def test_a_provider_that_is_down_is_said_and_keys_go_on(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    clock = [1000.0]
    known = providers.provider_of(context)
    assert known is not None
    known.clock = lambda: clock[0]
    provider.is_down = True
    answer = stranger.get(SELF, headers=with_token(provider.token()))
    assert_problem(answer, 503, "provider_unavailable")
    assert answer.headers["retry-after"] == "10"
    key = service.create_key(context, "a key", [Scope.ANALYST])
    assert key is not None
    assert stranger.get(SELF, headers=with_token(key.token)).status_code == 200
    provider.is_down = False
    clock[0] += providers.ASKED_AGAIN_AFTER_S
    assert stranger.get(SELF, headers=with_token(provider.token(jti="1"))).status_code == 200
    # Known keys are believed while it is down again, for an hour and not for longer.
    provider.is_down = True
    clock[0] += providers.STALE_S - 1
    assert stranger.get(SELF, headers=with_token(provider.token(jti="2"))).status_code == 200
    clock[0] += 1
    assert_problem(stranger.get(SELF, headers=with_token(provider.token(jti="3"))), 503, "provider_unavailable")


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://keys.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"token_endpoint": None},
        {"authorization_endpoint": ["x"]},
    ],
)
def test_a_discovery_document_that_is_not_the_issuers_is_not_used(
    stranger: TestClient, provider: FaultyProvider, document: dict[str, Any]
) -> None:
    provider.document = document
    assert_problem(stranger.get(SELF, headers=with_token(provider.token())), 503, "provider_unavailable")


def test_an_account_is_barred_by_revoking_it_and_its_token_cannot_be_rotated(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    token = provider.token()
    account = stranger.get(SELF, headers=with_token(token)).json()["id"]
    officer = with_token(provider.token(sub="officer", groups=["officers"]))
    assert_problem(stranger.post(f"/v1/keys/{account}/rotate", headers=officer, json={}), 409, "account_has_no_token")
    shown = stranger.get(f"/v1/keys/{account}", headers=officer).json()
    assert (shown["issuer"], shown["subject"], shown["scopes"]) == (provider.issuer, "user-1", [])
    revoked = stranger.post(f"/v1/keys/{account}/revoke", headers={**officer, "Idempotency-Key": "revoke"})
    assert revoked.status_code == 200, revoked.text
    refusal(stranger, token, 403, "no_rights")
    refusal(stranger, provider.token(jti="2"), 403, "no_rights")


def test_a_right_of_some_budgets_reaches_those_and_one_that_does_not_exist_reaches_nothing(
    stranger: TestClient, provider: FaultyProvider, tmp_path: Path
) -> None:
    officer = with_token(provider.token(sub="officer", groups=["officers"]))
    body = {"neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
    budgets = []
    for name in ("one", "two"):
        made = stranger.post("/v1/budgets", headers={**officer, "Idempotency-Key": name}, json={**body, "name": name})
        assert made.status_code == 201, made.text
        budgets.append(made.json()["id"])
    rights = f'[[rights]]\ngroup = "analysts"\nscopes = ["owner"]\nbudgets = ["{budgets[0]}", "bud_{"a" * 24}"]\n'
    write_configuration(tmp_path / "oidc.toml", provider.issuer, rights)
    configuration._read.cache_clear()
    token = with_token(provider.token())
    assert [each["id"] for each in stranger.get("/v1/budgets", headers=token).json()["items"]] == [budgets[0]]
    assert stranger.get(f"/v1/budgets/{budgets[1]}", headers=token).status_code == 404


def test_two_that_come_at_once_make_one_account(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    tokens = [provider.token(jti=str(number)) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda token: stranger.get(SELF, headers=with_token(token)), tokens))
    assert {answer.status_code for answer in answers} == {200}
    assert len(service.list_keys(context)) == 1


@pytest.mark.parametrize(
    ("rights", "more", "expected"),
    [
        ("", {}, "rights: Field required"),
        ('[[rights]]\nscopes = ["analyst"]\nbudgets = "all"\n', {}, "either a group or a subject"),
        ('[[rights]]\ngroup = "a"\nsubject = "b"\nscopes = ["analyst"]\nbudgets = "all"\n', {}, "either a group or"),
        ('[[rights]]\ngroup = "a"\nscopes = ["analyst"]\n', {}, "rights.0.budgets"),
        ('[[rights]]\ngroup = "a"\nscopes = ["boss"]\nbudgets = "all"\n', {}, "rights.0.scopes.0"),
        ('[[rights]]\ngroup = "a"\nscopes = ["admin"]\nbudgets = ["bud_a"]\n', {}, 'give budgets = "all"'),
        ("", {"issuer": "http://login.example"}, "https:// address"),
        ("", {"issuer": "https://login.example?x=1"}, "https:// address"),
        ("", {"audience": CLIENT_ID}, "the same"),
        ("", {"client_secret_file": "/nowhere"}, "cannot be read"),
        ("", {"clientid": "x"}, "clientid"),
        ("not TOML", {}, "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place(
    context: Context, tmp_path: Path, rights: str, more: dict[str, Any], expected: str
) -> None:
    given = rights or ("" if not more else RIGHTS)
    path = write_configuration(tmp_path / "other.toml", more.pop("issuer", "https://login.example"), given, **more)
    settings = context.settings.model_copy(update={"oidc_file": path})
    with pytest.raises(Wrong, match=expected) as refused:
        configuration_of(settings)
    assert str(path) in str(refused.value)


def test_a_file_needs_the_public_address(context: Context) -> None:
    settings = context.settings.model_copy(update={"public_url": ""})
    settings.__dict__.pop("public_address", None)
    with pytest.raises(Wrong, match="EPSILOND_PUBLIC_URL"):
        configuration_of(settings)
    assert context.settings.public_url == PUBLIC_URL


def test_the_first_key_is_made_where_there_are_accounts_alone(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    """`keys create --if-none` is how a container has its first key, and accounts have none."""
    assert not service.any_key_was_made(context)
    assert stranger.get(SELF, headers=with_token(provider.token())).status_code == 200
    assert not service.any_key_was_made(context)
    assert service.create_key(context, "first", [Scope.ADMIN], if_none=True) is not None
    assert service.any_key_was_made(context)
    assert service.create_key(context, "second", [Scope.ADMIN], if_none=True) is None


def test_a_name_that_cannot_be_read_is_not_shown(
    stranger: TestClient, provider: FaultyProvider, context: Context
) -> None:
    names = {"one": "\u202eboss", "two": "  ", "three": "x" * 300, "four": 7, "five": "Ada"}
    for subject, name in names.items():
        token = provider.token(sub=subject, preferred_username=name)
        assert stranger.get(SELF, headers=with_token(token)).status_code == 200
    shown = {row.subject: row.name for row in service.list_keys(context)}
    assert shown == {"one": "one", "two": "two", "three": "x" * 200, "four": "four", "five": "Ada"}
