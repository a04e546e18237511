from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

from app.context import Context
from app.datasets import bundled, service, versions
from app.datasets.columns import CategoryColumn, NumberColumn, split_label

LOADERS = {
    "ds_breast_cancer": datasets.load_breast_cancer,
    "ds_diabetes": datasets.load_diabetes,
    "ds_digits": datasets.load_digits,
}


@pytest.mark.parametrize("dataset_id", LOADERS)
def test_declaration_and_rows_agree(dataset_id: str) -> None:
    source = LOADERS[dataset_id]()
    metadata = bundled.declaration(dataset_id).metadata
    features, labels = bundled.load(dataset_id)
    columns, label = split_label(metadata.columns, metadata.label)
    assert metadata.public
    assert features.shape == (metadata.declared_size, len(columns)) == source.data.shape
    # The published bounds hold every value, so that clipping changed nothing.
    assert np.array_equal(features, source.data)
    assert np.array_equal(labels, source.target)
    for index, column in enumerate(columns):
        assert isinstance(column, NumberColumn)
        assert column.lower <= features[:, index].min()
        assert features[:, index].max() <= column.upper
    if isinstance(label, CategoryColumn):
        assert labels.dtype == np.int64
        assert label.categories == [str(name) for name in source.target_names]
    else:
        assert label.lower <= labels.min() <= labels.max() <= label.upper


def test_breast_cancer_columns_have_the_published_names_in_their_order() -> None:
    metadata = bundled.declaration("ds_breast_cancer").metadata
    names = [column.name for column in metadata.columns[:-1]]
    assert names == [str(name) for name in datasets.load_breast_cancer().feature_names]


def test_breast_cancer_bounds_are_round_and_outside_the_published_table() -> None:
    description = datasets.load_breast_cancer().DESCR
    published = re.findall(
        r"^[a-z ]+ \((?:mean|standard error|worst)\): +([\d.]+) +([\d.]+)$", description, re.MULTILINE
    )
    assert len(published) == 30
    columns = bundled.declaration("ds_breast_cancer").metadata.columns
    for column, (lowest, highest) in zip(columns, published, strict=False):
        assert isinstance(column, NumberColumn)
        assert column.lower < float(lowest) or column.lower == float(lowest) == 0
        assert column.upper > float(highest)
        for bound in (column.lower, column.upper):
            assert float(f"{bound:.1e}") == bound


def test_diabetes_bounds_are_the_published_ones() -> None:
    documented = datasets.load_diabetes.__doc__
    assert documented is not None
    assert "-.2 < x < .2" in documented
    assert "25 - 346" in documented
    columns = bundled.declaration("ds_diabetes").metadata.columns
    assert [(c.lower, c.upper) for c in columns if isinstance(c, NumberColumn)] == [(-0.2, 0.2)] * 10 + [(25, 346)]


def test_the_registered_rows_are_the_committed_declarations(context: Context) -> None:
    files = sorted(Path(bundled.__file__).with_name("bundled_bounds").glob("*.json"))
    assert [json.loads(file.read_text())["id"] for file in files] == sorted(LOADERS)
    with context.database.read() as session:
        for dataset_id in LOADERS:
            dataset = service.get(session, dataset_id)
            body = service.body_of(dataset, versions.newest(session, dataset))
            metadata = bundled.declaration(dataset_id).metadata
            assert body.bundled
            # There is a slot for each row, and their number is public.
            expected = metadata.model_dump() | {"capacity": metadata.declared_size, "held_out_share": None}
            assert body.model_dump(include=set(type(metadata).model_fields)) == expected
            assert service.load(context, session, dataset_id).capacity == len(bundled.load(dataset_id)[1])


def test_loading_through_the_service_needs_no_file(context: Context) -> None:
    with context.database.read() as session:
        loaded = service.load(context, session, "ds_digits")
    assert loaded.public
    assert loaded.features.shape == (1797, 64)
    assert loaded.label.name == "digit"
    assert not (context.settings.data_dir / "datasets").exists()
