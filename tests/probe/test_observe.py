from __future__ import annotations

from smoketest.probe.observe import said


def test_a_sentence_about_a_constant_says_that_it_is_an_argument_of_the_op() -> None:
    assert said("failed to legalize operation 'torch.constant.bool'") == (
        "failed to legalize operation 'torch.constant.bool', an argument of the op: the compiler names the first "
        "operation left over"
    )


def test_a_sentence_about_the_op_stays_as_it_is() -> None:
    assert (
        said("failed to legalize operation 'torch.aten.erfinv'") == "failed to legalize operation 'torch.aten.erfinv'"
    )
