"""Results say which commit gave them, and never some other project's."""

import shutil
import subprocess

import pytest

from lzero.provenance import commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    package = tmp_path / "src" / "lzero"
    package.mkdir(parents=True)
    (package / "law.py").write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return package


def test_a_checkout_has_its_commit_and_changes_are_told(package):
    short = git(package, "rev-parse", "--short=7", "HEAD")
    git(package, "tag", "v1")
    assert commit(package) == short
    (package / "law.py").write_text("2\n")
    assert commit(package) == short  # the process still runs what it began with
    commit.cache_clear()
    assert commit(package) == f"{short}+"


def test_only_the_code_counts_with_files_that_are_new(package):
    short = git(package, "rev-parse", "--short=7", "HEAD")
    (package.parent.parent / "results.md").write_text("3 %")
    assert commit(package) == short
    commit.cache_clear()
    (package / "other_law.py").write_text("1\n")
    assert commit(package) == f"{short}+"


def test_a_repository_that_the_environment_names_is_not_asked(package, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    git(other, "commit", "--quiet", "--allow-empty", "--message", "theirs")
    short = git(package, "rev-parse", "--short=7", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert commit(package) == short


def test_without_an_answer_from_git_there_is_none(package, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit(package) == ""


def test_an_installed_copy_inside_another_checkout_has_none(package):
    installed = package.parent.parent / "lib" / "site-packages" / "lzero"
    shutil.copytree(package, installed)
    assert commit(installed) == ""


def test_an_empty_repository_has_none(tmp_path):
    (tmp_path / "src" / "lzero").mkdir(parents=True)
    git(tmp_path, "init", "--quiet")
    assert commit(tmp_path / "src" / "lzero") == ""
