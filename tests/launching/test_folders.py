"""The folder of a run: its files for every launcher and target, what they say, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
from launches_made import FOUR_NODES, OFFLOADED, ONE_NODE, config, hosts, launch

import dsgen
from dsgen.deepspeed.environment import OWNERS, launcher_options, variables
from dsgen.launching import LAUNCHERS, JobLaunch, RunFolder, run_folder
from dsgen.launching.asked import TARGETS_LAUNCHED
from dsgen.launching.variables import environment
from dsgen.linting.asked import lint
from dsgen.shapes.errors import DsgenError

# Read by what is no owner of schema/environment.json: torch's gloo (its ProcessGroupGloo.cpp), Lightning's strategy.
OTHERS = {"GLOO_SOCKET_IFNAME", "PL_DEEPSPEED_CONFIG_PATH"}
EVERY = [(launcher, wanted) for launcher in LAUNCHERS for wanted in (ONE_NODE, FOUR_NODES, OFFLOADED)]


def made(launcher: str, wanted: dict[str, Any], **fields: Any) -> RunFolder:
    return run_folder(launch(wanted, launcher=launcher, **fields))


def text(written: RunFolder, name: str) -> str:
    return next(file.text for file in written.files if file.name == name)


def names(written: RunFolder) -> list[str]:
    return [file.name for file in written.files]


@pytest.mark.parametrize(("launcher", "wanted"), EVERY)
def test_every_script_is_bash_and_the_config_is_the_config(
    launcher: str, wanted: dict[str, Any], tmp_path: Path
) -> None:
    written = made(launcher, wanted)

    assert text(written, "ds_config.json") == config(**wanted).to_json()
    assert all(file.text.endswith("\n") and file.reason for file in written.files)
    for file in written.files:
        if file.name.endswith((".sh", ".sbatch")):
            (tmp_path / file.name).write_text(file.text)
            done = subprocess.run(["bash", "-n", str(tmp_path / file.name)], capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("launcher", "wanted"), EVERY)
def test_our_own_linter_has_nothing_to_say(launcher: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    for file in made(launcher, wanted).files:
        (tmp_path / file.name).write_text(file.text)

    scripts = [str(path) for path in tmp_path.iterdir() if path.suffix in (".sh", ".sbatch")]

    assert [str(finding) for one in scripts for finding in lint(one).findings] == []


def test_what_each_launcher_is_written() -> None:
    common = ["ds_config.json", "env.sh", "rank.sh"]

    assert names(made("deepspeed", ONE_NODE)) == [*common, "run.sh", "RUN.md"]
    assert names(made("deepspeed", FOUR_NODES)) == [*common, "hostfile", "run.sh", "RUN.md"]
    assert names(made("torchrun", FOUR_NODES)) == [*common, "run.sh", "RUN.md"]
    assert names(made("accelerate", FOUR_NODES)) == [*common, "run.sh", "RUN.md"]
    assert names(made("slurm", FOUR_NODES, hosts=())) == [*common, "job.sbatch", "RUN.md"]


@pytest.mark.parametrize("target", TARGETS_LAUNCHED)
@pytest.mark.parametrize(("launcher", "wanted"), EVERY)
def test_every_variable_is_read_by_something_and_has_its_reason(
    launcher: str, target: str, wanted: dict[str, Any]
) -> None:
    told = environment(launch(wanted, launcher=launcher, target=target, interface="eth0"))
    known = {name for owner in OWNERS for name in variables(owner).names} | OTHERS

    assert {one.name for one in told} <= known
    assert all(one.reason and one.reader for one in told)
    assert len({one.name for one in told}) == len(told)
    shown = text(made(launcher, wanted, target=target, interface="eth0"), "env.sh")
    for one in told:
        before = shown.partition(f"\nexport {one.name}=")[0].splitlines()[-1]
        assert before.startswith("# ")


def test_the_environment_follows_the_job() -> None:
    def named(wanted: dict[str, Any], **fields: Any) -> dict[str, str]:
        return {one.name: one.value for one in environment(launch(wanted, **fields))}

    assert "NCCL_SOCKET_IFNAME" not in named(FOUR_NODES)
    assert named(FOUR_NODES, interface="ens5")["NCCL_SOCKET_IFNAME"] == "=ens5"
    assert "NCCL_SOCKET_IFNAME" not in named(ONE_NODE, interface="ens5")
    assert named(FOUR_NODES)["DEEPSPEED_TIMEOUT"] == "30"
    assert "DEEPSPEED_TIMEOUT" not in named(FOUR_NODES, target="hf-trainer")  # it has ddp_timeout
    cores = config(**OFFLOADED).plan.job.hardware.cpu_cores
    assert named(OFFLOADED)["OMP_NUM_THREADS"] == str(cores // 2)
    assert "LOCAL_SIZE" not in named(ONE_NODE)
    assert named({"hw": "cpu", "model": "125m", "gpus": 2})["LOCAL_SIZE"] == "2"
    assert "LOCAL_SIZE" in variables("deepspeed").names
    assert "ACCELERATE_USE_DEEPSPEED" in named(ONE_NODE, target="accelerate")
    assert "ACCELERATE_USE_DEEPSPEED" not in named(ONE_NODE, target="accelerate", launcher="accelerate")


def test_the_deepspeed_command_has_only_options_that_the_release_has() -> None:
    for wanted in (ONE_NODE, FOUR_NODES, OFFLOADED):
        script = text(made("deepspeed", wanted), "run.sh")
        said = {
            word
            for line in script.splitlines()
            for word in line.split()
            if line.startswith("  --") and word[:2] == "--"
        }
        assert said <= set(launcher_options())
    assert "--bind_cores_to_rank" in text(made("deepspeed", OFFLOADED), "run.sh")
    assert "--bind_cores_to_rank" not in text(made("deepspeed", ONE_NODE), "run.sh")


def test_the_hosts_are_written_and_the_first_is_met() -> None:
    assert text(made("deepspeed", FOUR_NODES), "hostfile").splitlines()[0] == "worker-1 slots=8"
    assert "--rdzv-endpoint worker-1:29500" in text(made("torchrun", FOUR_NODES), "run.sh")
    assert "--main_process_ip worker-1" in text(made("accelerate", FOUR_NODES), "run.sh")
    assert "--max-restarts 3" in text(made("torchrun", FOUR_NODES), "run.sh")
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in variables("torch").names
    for launcher, wanted in (("torchrun", ONE_NODE), ("torchrun", FOUR_NODES), ("accelerate", FOUR_NODES)):
        assert "\nexport TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n" in text(made(launcher, wanted), "run.sh")


def test_the_job_of_slurm_says_the_nodes_and_what_it_needs() -> None:
    job = text(made("slurm", FOUR_NODES, hosts=(), directives=("--partition=gpu",), folder='/runs/a "b"'), "job.sbatch")

    for line in ("--nodes=4", "--ntasks-per-node=8", "--gpus-per-node=8", "--exclusive", "--requeue", "--partition=gpu",
                 '--chdir="/runs/a \\"b\\""', "--signal=B:USR1@300"):  # fmt: skip
        assert f"#SBATCH {line}\n" in job
    part = text(made("slurm", {**ONE_NODE, "gpus": 2, "offload": "optimizer"}), "job.sbatch")
    assert "#SBATCH --mem=" in part
    assert "#SBATCH --exclusive" not in part


def test_what_the_program_must_do_is_on_the_page() -> None:
    assert "- Do this.\n" in text(made("accelerate", ONE_NODE, target="accelerate", needs=("Do this.",)), "RUN.md")


def refused(one: JobLaunch) -> str:
    with pytest.raises(DsgenError) as caught:
        run_folder(one)
    return str(caught.value)


def test_several_nodes_need_their_hosts() -> None:
    for launcher in ("deepspeed", "torchrun", "accelerate"):
        assert refused(launch(FOUR_NODES, launcher=launcher, hosts=())).startswith(
            f"no hosts are named for 4 nodes; {launcher} must know them\n"
        )


def test_hosts_at_odds_with_the_job_are_refused() -> None:
    assert "3 hosts, and the job runs on 4 nodes" in refused(launch(FOUR_NODES, hosts=hosts(3, 8)))
    assert "slots=4, and the job runs on 8 GPUs" in refused(launch(FOUR_NODES, hosts=hosts(4, 4)))
    assert "2 hosts, and the job runs on 1 node;" in refused(launch(ONE_NODE, hosts=hosts(2, 8)))


def test_a_batch_at_odds_with_the_ranks_is_refused() -> None:
    one = launch(ONE_NODE)
    tree = {**one.config.tree, "train_batch_size": one.config.tree["train_batch_size"] + 1}

    assert "is not 2 x " in refused(attrs.evolve(one, config=attrs.evolve(one.config, tree=tree)))


def test_a_layer_s_ranks_stay_in_one_node() -> None:
    one = launch(ONE_NODE)
    strategy = attrs.evolve(one.plan.chosen.strategy, tp=16)
    plan = attrs.evolve(one.plan, chosen=attrs.evolve(one.plan.chosen, strategy=strategy))

    assert refused(attrs.evolve(one, config=attrs.evolve(one.config, plan=plan))).startswith(
        "AutoTP 16 does not divide the 8 GPUs of a node; the GPUs that share a layer are in one node"
    )


def test_a_folder_that_a_launcher_would_not_quote_is_refused() -> None:
    assert "the folder /runs/a b holds letters" in refused(launch(FOUR_NODES, folder="/runs/a b"))
    run_folder(launch(FOUR_NODES, folder="/runs/a b", launcher="torchrun"))
    assert "holds a line break" in refused(launch(FOUR_NODES, folder="/runs/a\nb", launcher="slurm", hosts=()))


@pytest.mark.parametrize("directive", ["partition=gpu", "--a\n#SBATCH --b", ""])
def test_a_directive_is_one_option(directive: str) -> None:
    assert "is no directive; it must be one option" in refused(
        launch(FOUR_NODES, launcher="slurm", hosts=(), directives=(directive,))
    )


def test_the_library_writes_what_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    job = dsgen.profile("a100-40g") | dsgen.profile("7b")

    written = dsgen.launch(job, launcher="slurm", script=Path("train.py"), folder="runs/one", arguments=["--a", "b c"])
    written.write()

    assert written.start() == f"sbatch {tmp_path}/runs/one/job.sbatch"
    assert {path.name: path.read_text() for path in (tmp_path / "runs" / "one").iterdir()} == {
        file.name: file.text for file in written.files
    }
    with pytest.raises(DsgenError, match="a run has a folder of its own"):
        written.write()
    written.write(force=True)
    with pytest.raises(DsgenError, match="launcher is 3; it must be text"):
        dsgen.launch(job, launcher=3, script="train.py", folder="x")  # type: ignore[arg-type]
