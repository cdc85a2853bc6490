"""What the model is built with: the first records, and settings of its module."""

import keras
import pytest
from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError

from tests.integration.model.conftest import COMPILED


def test_bad_records_among_the_first_are_left_to_whoever_trains_them(define):
    """There they are named, or skipped."""
    names = Metadata(column_names=("a", "b", "c", "d", "label"))
    bad, good = b"1,2,,4,0", b"1,2,3,4,0"
    definition = define(COMPILED, "net.model")
    definition.build_model(names, [bad, good])
    assert definition.model.built
    with pytest.raises(UserCodeError, match=r"no record of the data .* column `c` "):
        define(COMPILED, "net.model").build_model(names, [bad, bad])


def test_a_type_of_floats_of_one_module_is_none_of_the_next(define):
    other = "keras.config.set_floatx('float16')"
    with pytest.raises(UserCodeError, match=r"set_floatx\('float16'\), expected"):
        define(COMPILED.replace("import keras\n", f"import keras\n{other}\n", 1))
    assert keras.config.floatx() == "float32"
    text = COMPILED.replace("return network", f"{other}\n    return network")
    definition = define(text, "net.model")
    with pytest.raises(UserCodeError, match="set_floatx"):
        definition.build_model()
    define(COMPILED, "net.model").build_model()
