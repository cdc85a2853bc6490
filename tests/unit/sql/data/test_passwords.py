"""Claims about passwords in texts: none is left, and nothing else is changed."""

from __future__ import annotations

import pytest
from elasticdl.sql.data.passwords import without_secret


@pytest.mark.parametrize(
    "text",
    [
        "FROM postgres_scan('postgresql://u:{}@host:5432/shop', 'public', 't')",
        "FROM mysql('mysql://u@server:{}@host/db?mail=x') WHERE a = 'b@c'",
        "FROM f('host=h password={} dbname=shop')",
        "FROM f('host=h password=''{}'' dbname=shop')",
        'FROM f("host=h password={}")',
        "FROM f('Server=h;PWD={};Database=d')",
        'FROM f(\'{{"password": "{}", "x": 1}}\')',
        "CREATE SECRET s (TYPE mysql, PASSWORD '{}', HOST 'h')",
        "CREATE USER u IDENTIFIED BY '{}'",
        "CREATE USER u IDENTIFIED WITH mysql_native_password BY '{}'",
        "SELECT 1 AS a, f('://u:{}@h') AS b WHERE password = '{}' AND d = 1",
    ],
)
@pytest.mark.parametrize("secret", ["pass", "p@s$", "my pass w@rd", "1234", "a:b/c@"])
def test_no_part_of_a_password_is_left(text: str, secret: str) -> None:
    told = without_secret(text.format(secret, secret))
    assert told == text.format("***", "***").replace("'***' AND", "*** AND").replace(
        "''***''", "***"
    ).replace("PASSWORD '***'", "PASSWORD ***").replace("BY '***'", "BY ***").replace(
        '"***", "x"', '***, "x"'
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("no answer of mysql://u:p@ss@h:3306/d", "no answer of mysql://u:***@h:3306/d"),
        ("denied for u (using password: YES)", "denied for u (using password: ***)"),
        ("pwd=secret;x", "pwd=***;x"),
        ("PGPASSWORD=secret x", "PGPASSWORD=*** x"),
        ("SET s3_secret_access_key='a b'", "SET s3_secret_access_key=***"),
        ("(TYPE s3, KEY_ID 'A', SECRET 'a b')", "(TYPE s3, KEY_ID 'A', SECRET ***)"),
        ("SET PASSWORD = PASSWORD('a')", "SET PASSWORD = PASSWORD(***)"),
        ("f(password => 'a b')", "f(password => ***)"),
    ],
)
def test_no_message_has_a_password(message: str, told: str) -> None:
    assert without_secret(message) == told


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM 'http://host:8080/data/a@b.csv' LABEL y INTO m",
        "SELECT * FROM 's3://bucket/a:b/c@d.parquet' LABEL y INTO m",
        "SELECT password, 'a@b' AS mail FROM t -- http://host:80 of me@home\nLABEL y",
        "SELECT * FROM t WHERE mail LIKE '%@%' AND url = 'http://h/x' LABEL y INTO m",
        "SELECT a::int, b[1:2] FROM t WHERE x = '://' || c LABEL y INTO m",
    ],
)
def test_a_text_without_a_password_is_not_changed(text: str) -> None:
    assert without_secret(text) == text
