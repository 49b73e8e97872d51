"""Generated images: JPEG files in folders of classes, the same every time, made once."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from unstarve.benchmark.bench_data import image_files


def test_images_of_several_sizes_are_made_once(tmp_path: Path) -> None:
    root = image_files(tmp_path / "a", 6)
    files = sorted(root.rglob("*.jpg"))
    assert {file.parent.name for file in files} == {"0", "1", "2", "3"}
    sizes = set()
    for file in files:
        with Image.open(file) as image:
            sizes.add(image.size)
    assert len(sizes) == 6
    before = [file.stat().st_mtime_ns for file in files]
    assert image_files(tmp_path / "a", 6) == root
    assert [file.stat().st_mtime_ns for file in files] == before
    other = image_files(tmp_path / "b", 6)
    assert [file.read_bytes() for file in sorted(other.rglob("*.jpg"))] == [
        file.read_bytes() for file in files
    ]
