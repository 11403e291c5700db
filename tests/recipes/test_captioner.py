"""Recipes of pictures: trained, resumed, loaded, judged, looked at."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.attention import Sample
from regard.data import DataError
from regard.data.algorithms import chance
from regard.data.captions import Album, CaptionBatch, Captioned, Pictures
from regard.decoding import Hypothesis
from regard.recipes import Captioner, SettingError, load, recipe, resume, settings_of, train
from regard.recipes._images import shown, taken
from regard.recipes.captions import _material as material
from regard.recipes.captions._judged import bleu, judged, named_rightly, nearest, within
from regard.recipes.captions._task import NextCaptionWord, build, learn
from regard.recipes.studies._xu2015 import xu2015
from regard.training import Run, load_weights
from tests.recipes.albums import features, squares

pytest.importorskip("PIL.Image")

NET = ["width=4", "grid_dim=24", "embed_dim=16", "dim=24", "threads=1", "warmup=5"]
TINY = [*NET, "size=32", "batch=8", "steps=4", "validate_every=2", "save_every=2"]


def quiet(line):
    pass


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch):
    monkeypatch.setattr(material, "CHOOSING", 12)
    monkeypatch.setattr(material, "TESTING", 20)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squares")
    return {
        name: (squares(folder, name, count, seed),)
        for name, count, seed in (("train", 60, 0), ("valid", 12, 1), ("test", 20, 2))
    }


@pytest.fixture(scope="module")
def told(files, tmp_path_factory):
    """A run that has learned to name a color and a side."""
    folder = tmp_path_factory.mktemp("runs") / "squares"
    words = [
        "width=8",
        "grid_dim=40",
        "embed_dim=32",
        "dim=48",
        "size=24",
        "batch=30",
        "dropout=0",
        "min_count=1",
    ]
    rate = ["lr=0.01", "schedule=constant", "steps=100", "validate_every=50", "threads=1", "warmup=5"]
    train("captions", folder, [*words, *rate], say=quiet, **files)
    return folder


def test_it_learns_to_tell(told, files):
    captioner = load(told)
    assert isinstance(captioner, Captioner)
    found = recipe("captions").task.judge(recipe("captions"), captioner)
    assert found["part"] == "test"
    assert found["pictures"] == 20
    assert found["bleu1"] > 90


def test_images_come_as_files_arrays_and_tensors(told, files):
    from PIL import Image

    captioner = load(told)
    path = str(files["test"][0]).replace(".jsonl", "/3.png")
    line = json.loads(Path(files["test"][0]).read_text(encoding="utf-8").splitlines()[3])
    with Image.open(path) as file:
        image = file.copy()
    pixels = torch.tensor(list(image.tobytes())).view(20, 24, 3)
    forms = [path, image, pixels.byte().numpy(), pixels / 255]
    assert captioner.caption(forms) == line["captions"] * 4
    assert captioner.caption([]) == []
    with pytest.raises(TypeError, match="takes many images"):
        captioner.caption(path)
    with pytest.raises(DataError, match="an image is"):
        captioner.caption([torch.rand(3, 20, 24)])
    with pytest.raises(DataError, match="numbers outside of 0"):
        captioner.caption([torch.rand(20, 24) * 300])
    with pytest.raises(DataError, match="There is no image"):
        captioner.caption(["nowhere.png"])


def test_transparent_is_white_however_an_image_comes(tmp_path):
    from PIL import Image

    pixels = np.zeros((16, 16, 4), dtype=np.uint8)
    pixels[..., 0], pixels[:, 8:, 3] = 255, 128  # nothing at the left, half of red at the right
    image = Image.fromarray(pixels)
    image.save(tmp_path / "clear.png")
    image.convert("LA").save(tmp_path / "gray.png")
    wanted = taken(str(tmp_path / "clear.png"), 16, color=True)
    assert wanted[:, 0, 0].tolist() == [1, 1, 1]
    for form in (image, pixels, torch.from_numpy(pixels), pixels / 255):
        torch.testing.assert_close(taken(form, 16, color=True), wanted, atol=0.004, rtol=0)
        torch.testing.assert_close(shown(form), wanted.permute(1, 2, 0), atol=0.004, rtol=0)
    assert torch.equal(taken(image.convert("LA"), 16), taken(str(tmp_path / "gray.png"), 16))


def test_sixteen_bits_are_the_same_however_an_image_comes(tmp_path):
    from PIL import Image

    numbers = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    image = Image.fromarray(numbers)
    image.save(tmp_path / "deep.png")
    for form in (str(tmp_path / "deep.png"), image, numbers):
        found = taken(form, 16)[0]
        torch.testing.assert_close(found, torch.from_numpy(numbers / 65535).float(), atol=0.002, rtol=0)
    with pytest.raises(DataError, match="the image has numbers of 32 bits"):
        taken(Image.fromarray(np.ones((4, 4), dtype=np.float32)), 16)


def test_a_look_has_weights_for_each_word(told, files):
    captioner = load(told)
    looked = captioner.look(str(files["test"][0]).replace(".jsonl", "/3.png"))
    assert looked.weights.shape == (len(looked.words), 3, 3)
    torch.testing.assert_close(looked.weights.sum((1, 2)), torch.ones(len(looked.words)))
    assert all(0 < share <= 1 for share in looked.probabilities)
    assert looked.caption == " ".join(looked.words)
    assert looked.image.shape == (20, 24, 3)
    assert looked.picture("a title").png()[1:4] == b"PNG"
    assert looked.words[0] in looked.drawn().splitlines()[0]
    plain = json.loads(json.dumps(looked.to_json()))
    assert len(plain["weights"]) == len(plain["words"])


def test_a_beam_finds_what_is_at_least_as_likely(told, files):
    captioner = load(told)
    pictures = captioner.pictured(str(files["test"][0]).replace(".jsonl", "/1.png"))[None]
    greedy = captioner.search(pictures, captioner.decoding(beam=1, alpha=0.0))[0]
    beam = captioner.search(pictures, captioner.decoding(beam=4, alpha=0.0))[0]
    assert beam.log_prob >= greedy.log_prob - 1e-5


@pytest.mark.parametrize("scope", ["soft", "hard", "none"])
def test_scenes_of_every_scope(scope, tmp_path):
    train("digit-scenes", tmp_path / "run", [*TINY, f"scope={scope}"], say=quiet)
    captioner = load(tmp_path / "run")
    assert captioner.attends == (scope != "none")
    found = recipe("digit-scenes").task.judge(recipe("digit-scenes"), captioner)
    assert found["pictures"] == 20
    assert ("inside" in found) == (scope != "none")
    looked = captioner.look(torch.rand(32, 32))
    if scope == "none":
        assert looked.weights is None
        with pytest.raises(ValueError, match="has no attention"):
            looked.picture()
    elif scope == "hard" and looked.words:
        assert set(looked.weights.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("more", [["dropout=0.3", "penalty=0.1"], ["scope=hard", "soft_first=0"]])
def test_an_interrupted_run_goes_on_bit_for_bit(more, tmp_path):
    train("digit-scenes", tmp_path / "whole", [*TINY, *more], say=quiet)
    train("digit-scenes", tmp_path / "parts", [*TINY, *more, "steps=2"], say=quiet)
    resume(tmp_path / "parts", say=quiet, steps=4)
    whole, again = (load_weights(Run.open(tmp_path / name).weights()) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_files_go_on_bit_for_bit(files, tmp_path):
    words = [*TINY, "min_count=1"]
    train("captions", tmp_path / "whole", words, say=quiet, **files)
    train("captions", tmp_path / "parts", [*words, "steps=2"], say=quiet, **files)
    resume(tmp_path / "parts", say=quiet, steps=4)
    whole, again = (load_weights(Run.open(tmp_path / name).weights()) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_hard_begins_with_soft(tmp_path):
    train("digit-scenes", tmp_path / "soft", TINY, say=quiet)
    outcome = train(
        "digit-scenes", tmp_path / "hard", [*TINY, "scope=hard"], init_from=tmp_path / "soft", say=quiet
    )
    assert outcome.step == 4


def test_ready_features(tmp_path):
    data = features(tmp_path / "flickr")
    words = [
        "dim=24",
        "embed_dim=16",
        "batch=8",
        "steps=60",
        "validate_every=30",
        "lr=0.02",
        "warmup=5",
        "beam=2",
    ]
    train(
        "flickr8k", tmp_path / "run", [*words, "min_count=2", "dropout=0", "threads=1"], say=quiet, data=data
    )
    captioner = load(tmp_path / "run")
    found = recipe("flickr8k").task.judge(recipe("flickr8k"), captioner)
    assert found["bleu4"] > 80
    assert found["nearest"]["bleu4"] > 80
    assert captioner.words.decode([1]) == "<unk>"
    assert captioner.words.lowercase
    with pytest.raises(DataError, match="trained on ready features"):
        captioner.caption(["dog.jpg"])
    test = recipe("flickr8k").material(captioner.settings).tests["test"]()
    assert captioner.look(test.pictures.some(slice(1))[0]).weights.shape[1:] == (3, 3)


def told_by(folder, *lines):
    """A folder as that of Flickr8k with other captions."""
    data = Path(features(folder))
    (data / "captions.tsv.xz").unlink()
    (data / "captions.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return recipe("flickr8k").material(settings_of("flickr8k", data=str(data)))


def test_features_and_captions_meet_by_name(tmp_path):
    whole = recipe("flickr8k").material(settings_of("flickr8k", data=features(tmp_path / "whole"))).train()
    lines = [
        "\t".join([name, "train", *texts]) for name, texts in zip(whole.names, whole.captions, strict=True)
    ]
    other = told_by(tmp_path / "other", *reversed(lines), "").train()
    assert other.names == whole.names[::-1]
    assert torch.equal(other.pictures.numbers, whole.pictures.numbers.flip(0))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "1.jpg a dog",
            r"captions.tsv, line 2: the second field should be the split \(train, dev, test\), not ''",
        ),
        ("1.jpg\tval\ta dog", "line 2: the second field should be the split .*, not 'val'"),
        ("1.jpg\ttrain", "line 2: 1.jpg has no captions"),
        ("1.jpg\ttrain\t \t", "line 2: 1.jpg has no captions"),
        ("99.jpg\ttrain\ta dog", "line 2: .*features.npz has no features of 99.jpg"),
    ],
)
def test_a_line_of_captions_that_cannot_be_used_is_said(line, sentence, tmp_path):
    with pytest.raises(DataError, match=sentence):
        told_by(tmp_path / "flickr", "0.jpg\ttrain\ta dog", line).train()


def test_a_split_without_lines_is_said(tmp_path):
    with pytest.raises(DataError, match="no line is of the split dev"):
        told_by(tmp_path / "flickr", "0.jpg\ttrain\ta dog").valid()


def test_damaged_features_are_said(tmp_path):
    settings = settings_of("flickr8k", data=features(tmp_path / "flickr"))
    file = tmp_path / "flickr" / "features.npz"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no features", b"", b"\x80\x04K\x01."):
        file.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            recipe("flickr8k").material(settings)
        assert str(caught.value) == f"{file} is no file of features, or is damaged; get it again."
    np.savez(file, q=np.zeros(3))
    with pytest.raises(DataError, match=r"q should be numbers \(dim, pictures, cells\), not float64 \(3,\)"):
        recipe("flickr8k").material(settings)
    np.savez(file, q=np.ones((8, 24, 9)))
    with pytest.raises(DataError, match="has no array 'image'"):
        recipe("flickr8k").material(settings).train()
    np.savez(file, q=np.ones((8, 24, 9)), image=["1.jpg"])
    with pytest.raises(DataError, match="image should be the names of the 24 pictures"):
        recipe("flickr8k").material(settings).train()


def test_rare_words_are_not_known():
    texts = [["a b c d e f"], ["A B C D E F"], ["a b c d e g"]]
    pictures = Captioned(Pictures(torch.zeros(3, 1, 8, 8)), texts)
    gallery = material.Gallery(lambda: pictures, lambda: pictures)
    for least, known in ((1, "abcdefg"), (2, "abcdef"), (3, "abcde")):
        words = learn(gallery, settings_of("captions", min_count=least))
        assert sorted(words.vocabulary.tokens[4:]) == [f"▁{letter}" for letter in known]


def test_a_word_must_be_there_often_enough():
    pictures = Captioned(Pictures(torch.zeros(2, 1, 8, 8)), [["a b"], ["a c"]])
    gallery = material.Gallery(lambda: pictures, lambda: pictures)
    with pytest.raises(
        DataError, match=r"min_count=1000: no word .*; the most frequent, 'a', is there 2 times"
    ):
        learn(gallery, settings_of("captions", min_count=1000))


def begun(folder, *words, **given):
    """What is said before a training of one step, in lines."""
    said = []
    train("captions", folder, [*TINY, "steps=1", "size=16", "batch=4", *words], say=said.append, **given)
    return said


@pytest.fixture
def told_of(tmp_path):
    """From captions to a file with an image for each."""
    from PIL import Image

    Image.new("RGB", (16, 16)).save(tmp_path / "x.png")

    def written(name, *captions):
        for place, _ in enumerate(captions):
            shutil.copy(tmp_path / "x.png", tmp_path / f"{name}{place}.png")
        lines = [
            json.dumps({"image": f"{name}{place}.png", "captions": [text]})
            for place, text in enumerate(captions)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return (str(tmp_path / f"{name}.jsonl"),)

    return written


def test_both_parts_are_reported_before_the_training(told_of, tmp_path):
    train_on = told_of("train", *["a b c d e"] * 3, "a rare word")
    valid = told_of("valid", "a b x", "a b c d e a")
    said = begun(tmp_path / "run", "max_length=5", "min_count=2", train=train_on, valid=valid)
    assert said[0] == "train: 4 pairs read, 4 used; 2 of 18 words (11.1 %) are not known."
    valid_line = (
        "valid: 2 pairs read, 1 used; 1 over 5 tokens left out (line 2); 1 of 3 words (33.3 %) is not known."
    )
    assert said[1] == valid_line
    assert Run.open(tmp_path / "run").read()["data"]["valid"]["unknown"] == 1


@pytest.mark.parametrize("text", ["a b c d e a", "x y"])
def test_nothing_to_choose_by_is_said_before_the_training(text, told_of, tmp_path):
    train_on, valid = told_of("train", "a b c d e"), told_of("valid", text)
    with pytest.raises(DataError, match="valid: No caption can be used: 1 pair read"):
        begun(tmp_path / "run", "max_length=5", "min_count=1", train=train_on, valid=valid)
    assert not (tmp_path / "run").exists()


def test_every_twentieth_image_is_held_out(told_of, tmp_path):
    settings = settings_of("captions", train=told_of("many", *(f"a {i}" for i in range(1, 46))), size=16)
    gallery = recipe("captions").material(settings)
    train_on, valid = gallery.train(), gallery.valid()
    assert valid.captions == [["a 20"], ["a 40"]]
    assert [Path(name).name for name in valid.names] == ["many19.png", "many39.png"]
    assert len(train_on) == len(train_on.pictures) == 43
    assert not {one for (one,) in train_on.captions} & {"a 20", "a 40"}
    few = settings_of("captions", train=told_of("few", "a b"), size=16)
    with pytest.raises(DataError, match=r"have 1 image, too few to hold one of 20 out; .*--valid"):
        recipe("captions").material(few).train()


def test_that_images_are_held_out_is_said(told_of, tmp_path):
    said = begun(tmp_path / "run", train=told_of("many", *["a b c d e"] * 20))
    assert said[1] == "valid: 1 pair read, 1 used. Every twentieth image was held out for it."


def test_chinese_is_cut_into_characters_and_joined_again():
    text = "一只狗在雪地里奔跑。"
    pictures = Captioned(Pictures(torch.zeros(1, 1, 8, 8)), [[text]])
    gallery = material.Gallery(lambda: pictures, lambda: pictures)
    settings = settings_of("captions", min_count=1)
    words = learn(gallery, settings)
    assert sorted(words.vocabulary.tokens[4:]) == sorted(f"▁{sign}" for sign in text)
    written = Album(pictures, words).batch(torch.tensor([0])).target[0, 1:-1].tolist()
    assert len(written) == len(text)
    captioner = Captioner(build(settings, len(words), None), words, settings)
    best = Hypothesis(written, 0.0, 0.0, [0.0] * len(text), True)
    assert captioner.text(best) == text
    assert captioner.looked(torch.zeros(1, 3, 64, 64), best, torch.zeros(1, 1, 3)).caption == text
    assert bleu([text], [[text]], lowercase=True)["bleu4"] == pytest.approx(100)


def objective(*words):
    settings = settings_of("digit-scenes", [*TINY, *words])
    net = NextCaptionWord(build(settings, 19, None), settings)
    return net, CaptionBatch.of(torch.rand(6, 1, 32, 32), [[5, 6, 7]] * 5 + [[5]])


def test_the_penalty_is_added_for_soft_attention_in_training():
    net, batch = objective("penalty=2")
    plain, _ = objective()
    plain.load_state_dict(net.state_dict())
    penalty = net(batch).total - plain(batch).total
    assert float(penalty.detach()) > 0
    net.eval()
    plain.eval()
    torch.testing.assert_close(net(batch).total, plain(batch).total)
    penalty.backward()
    assert float(net.model.attention.score.v.grad.abs().sum()) > 0


def test_hard_attention_is_rewarded():
    net, batch = objective("scope=hard", "expected=0", "soft_first=0")
    assert isinstance(net.model.attention.normalize, Sample)
    loss = net(batch)
    loss.total.backward()
    assert float(net.model.attention.score.v.grad.abs().sum()) > 0  # by REINFORCE: no other way leads there
    assert (net.baseline[: batch.target.shape[1] - 1] < 0).all()
    assert loss.count == batch.tokens == 5 * 4 + 2


def test_hard_attention_begins_softly():
    """In the first part of the training all captions see the expected look, then so many as `expected` says."""
    net, batch = objective("scope=hard", "expected=0", "soft_first=0.5", "steps=4", "accumulate=1")
    drawn = []
    for _ in range(4):
        _, seen = net._decoded(batch)
        drawn.append(all(bool((look.weights.amax(-1) == 1).all()) for look in seen))
    assert drawn == [False, False, True, True]
    assert float(net.state_dict()["seen"]) == 4  # so that a resumed training goes on with it
    other, _ = objective("scope=hard")
    other.take(net.state_dict(), "a run")
    assert float(other.seen) == 0
    assert not other.baseline.any()


def test_hard_attention_learns_where_to_look():
    """One cell of nine tells the word: REINFORCE alone finds it."""
    settings = settings_of(
        "flickr8k", ["scope=hard", "dim=16", "embed_dim=8", "dropout=0", "expected=0", "soft_first=0"]
    )
    net = NextCaptionWord(build(settings, 8, 8), settings)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    random = chance(0)
    for _ in range(150):
        batch = told_by_one_cell(random, 64)
        optimizer.zero_grad()
        loss = net(batch)
        (loss.total / loss.count).backward()
        optimizer.step()
    net.eval()
    batch = told_by_one_cell(random, 200)
    cells = net.model.looks(batch.pictures, batch.target)[:, 0].argmax(-1)
    assert float((cells == batch.pictures[..., 7].argmax(-1)).float().mean()) > 0.9


def told_by_one_cell(random, rows):
    """Grids in which a mark (the last number) stands in the cell that says the word; the others say another."""
    words, cell = (torch.randint(most, (rows,), generator=random) for most in (4, 9))
    grid = torch.zeros(rows, 9, 8)
    grid.scatter_(2, torch.randint(4, (rows, 9, 1), generator=random), 1.0)
    row = torch.arange(rows)
    grid[row, cell] = 0
    grid[row, cell, words] = 1
    grid[row, cell, 7] = 1
    return CaptionBatch.of(grid, [[4 + word] for word in words.tolist()])


def test_measures_of_scenes():
    true = ["small 1 above , large 2 below", "small 3 above , small 4 above"]
    assert named_rightly(true, true) == {"captions": 100.0, "digits": 100.0}
    said = ["small 1 above , large 2 above", "small 3"]
    assert named_rightly(said, true) == {"captions": 0.0, "digits": 75.0}


def test_cells_within_boxes_grown_by_a_cell():
    box = torch.tensor([16, 24, 26, 34])
    inside = [
        [bool(within(torch.tensor([[row * 8 + column]]), box[None, None], 64, 8)) for column in range(8)]
        for row in range(8)
    ]
    for row in range(8):
        for column in range(8):
            left, top = 8 * column, 8 * row
            wanted = left >= 8 and left + 8 <= 34 and top >= 16 and top + 8 <= 42
            assert inside[row][column] == wanted
    assert not bool(within(torch.tensor([[-1]]), box[None, None] * 0, 64, 8))


def test_bleu_with_and_without_the_penalty():
    found = bleu(["a dog", "a cat sits"], [["A dog", "the dog runs far"], ["a cat sits"]], lowercase=True)
    assert found["bleu1"] == found["bleu1_bare"] == pytest.approx(100)
    short = bleu(["a dog runs"], [["a dog runs to me"]], lowercase=False)
    assert short["bleu1_bare"] == pytest.approx(100)
    assert short["bleu1"] == pytest.approx(100 * 2.718281828 ** (1 - 5 / 3))
    assert bleu(["a dog"], [["A Dog"]], lowercase=False)["bleu1"] < 60
    assert "tok:none" in found["bleu_signature"]


def test_the_nearest_picture():
    grids = torch.eye(3)[:, None].repeat(1, 4, 1)
    train = Captioned(Pictures(grids, 1.0), [["a", "x"], ["b"], ["c"]])
    asked = Captioned(Pictures(grids[[2, 0]] * 5 + 0.1, 1.0), [["?"], ["?"]])
    assert nearest(train, asked) == ["c", "a"]


def test_nothing_to_judge_is_said(told):
    with pytest.raises(DataError, match="nothing to evaluate"):
        judged(load(told), Captioned(Pictures(torch.zeros(0, 3, 24, 24)), []))


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("captions", [], "captions needs files to train on: --train"),
        ("captions", ["train=nowhere.jsonl", "valid=x.jsonl"], "there is no file .*nowhere.jsonl"),
        ("mnist-scenes", [], "needs its data: data=FOLDER with the four files of MNIST"),
        ("mnist-scenes", ["data=nowhere"], "there is no such folder"),
        ("flickr8k", ["data=."], "there is no features.npz"),
        ("digit-scenes", ["color=on"], "color=on is not possible"),
        ("digit-scenes", ["scope=both"], "scope is one of soft, hard, none"),
        ("digit-scenes", ["watch=bits"], "watch is one of loss, captions, digits, bleu"),
        ("digit-scenes", ["size=8"], "size=8 is too small"),
        ("digit-scenes", ["grid_dim=16"], "grid_dim=16 is too small"),
        ("digit-scenes", ["expected=2"], "expected=2.0 must be from 0 to 1"),
        ("digit-scenes", ["scope=none", "score=dot"], "score=dot is for attention"),
        ("digit-scenes", ["score=nothing"], "score=nothing is not possible"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(name, words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=sentence):
        train(name, tmp_path / "run", words, say=quiet)
    assert not (tmp_path / "run").exists()


def test_the_study_has_its_table(tmp_path, monkeypatch):
    from regard.recipes.studies import _xu2015

    def small(*given, **more):
        shared = {"size": 32, "width": 4, "grid_dim": 24, "dim": 16, "embed_dim": 8, "batch": 8, "threads": 1}
        return trial(*given, **more, **shared)

    trial = _xu2015.trial
    monkeypatch.setattr(_xu2015, "trial", small)
    found = xu2015(tmp_path, "reverse", {"steps": 2, "validate_every": 2, "save_every": 2}, quiet)
    assert [row["scope"] for row in found["rows"]] == ["soft", "hard", "none"]
    assert "| scope | captions | digits | inside |" in found["table"]
    assert (tmp_path / "table.md").is_file()
    with pytest.raises(ValueError, match="neither Flickr8k"):
        xu2015(tmp_path, "reverse", {"data": str(tmp_path)}, quiet)
