"""Local Git repositories: the platform's, with chart and gitops/, and a team's."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.own_cluster import ROOT

UPSTREAM = "https://github.com/elasticdl/elasticdl.git"
TEAM = "https://git.example/ml/training.git"
TAG = "v1.0.0"  # by which gitops/ takes the chart
_AUTHOR = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
_COMMITTER = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


@dataclass(frozen=True)
class Repository:
    """Its working tree is at `root`; what is committed is there for all at once."""

    root: Path

    @property
    def url(self) -> str:
        return f"file://{self.root}"

    @staticmethod
    def empty(root: Path) -> Repository:
        """Make one without a commit."""
        one = Repository(root)
        root.mkdir()
        one._git("init", "--quiet", "--initial-branch=main")
        return one

    @staticmethod
    def make(root: Path, common: dict[str, Any], team: Repository) -> Repository:
        """Make the platform's, with those images, and that team's jobs to come."""
        one = Repository.empty(root)
        shutil.copytree(ROOT / "charts", root / "charts")
        shutil.copytree(ROOT / "gitops", root / "gitops")
        for file in (root / "gitops").rglob("*.yaml"):
            text = file.read_text().replace(UPSTREAM, one.url)
            file.write_text(text.replace(TEAM, team.url))
        one.commit("gitops/common.yaml", common)
        one._git("tag", TAG)
        return one

    def commit(self, path: str, content: dict[str, Any] | None) -> str:
        """Write a YAML file, None removes it; return the commit."""
        file = self.root / path
        if content is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml.safe_dump(content, sort_keys=False))
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", f"Change {path}")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.root,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.root),
                **_AUTHOR,
                **_COMMITTER,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
        return done.stdout
