from pathlib import Path

import pytest
from PIL import Image

from test.report.runs import HOSTILE, filled_with, loaded, simulated
from test.report.stages import in_stages
from timely_llm.experiments.results.document import DocumentError
from timely_llm.report.palette import LIGHT, SCHEMES
from timely_llm.report.png import draw, write_charts, write_pictures
from timely_llm.report.series import charts


def test_each_measure_and_timeline_is_a_picture_in_both_schemes(tmp_path: Path) -> None:
    paths = write_pictures(loaded(simulated()), tmp_path / "new" / "folder", ["Small run"])
    shown = [
        "utility", "response-s", "waiting-s", "share-first", "share-finished", "timeline-1",
        "timeline-2",
    ]  # fmt: skip
    assert [path.name for path in paths] == [
        f"small-run-{what}-{scheme}.png" for what in shown for scheme in ("light", "dark")
    ]
    for path in paths:
        with Image.open(path) as image:
            colors = image.convert("RGB").getcolors(2**24)
        assert colors is not None
        assert len(colors) > 10, "something is drawn"
        _, most = max(colors)
        assert isinstance(most, tuple)
        assert "#" + bytes(most).hex() == SCHEMES[path.stem.rpartition("-")[2]].page


def test_pictures_of_several_runs_do_not_overwrite_each_other(tmp_path: Path) -> None:
    run = simulated().model_copy(update={"timelines": (), "measures": ("utility",)})
    paths = write_pictures(loaded(run, run), tmp_path, ["a b", "a-b"])
    assert len(set(paths)) == len(paths) == len(list(tmp_path.iterdir())) == 12


def test_texts_are_never_tex_nor_paths(tmp_path: Path) -> None:
    text = "../../etc/$\\frac{ \x00\n" + "".join(HOSTILE)
    paths = write_pictures(loaded(filled_with(text)), tmp_path / "pictures", [text])
    assert {path.parent for path in paths} == {tmp_path / "pictures"}
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DocumentError, match="cannot write pictures to"):
        write_pictures(loaded(simulated()), tmp_path / "file", ["a"])


def test_charts_stand_side_by_side_in_one_picture(tmp_path: Path) -> None:
    one, *others = [chart for chart in charts(simulated()) if chart.readable]
    assert others
    write_charts([one], tmp_path / "one.png")
    write_charts([one, *others], tmp_path / "all.png")
    width, height = Image.open(tmp_path / "one.png").size
    assert Image.open(tmp_path / "all.png").size == (width * (1 + len(others)), height)


def test_stages_have_rows_of_their_own_and_a_legend() -> None:
    figure = draw(in_stages(), LIGHT)
    batch, stages, _ = figure.axes
    assert [tick.get_text() for tick in stages.get_yticklabels()] == ["stage 1", "stage 2"]
    assert stages.get_position().y1 < batch.get_position().y0
    computing, sending = (len(one.get_paths()) for one in stages.collections)
    assert (computing, sending) == (4, 4)
    words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert {"stage computes", "stage sends"} <= set(words)
