"""The numbers that the papers and the method's specification give for the law of one gate."""

import math

import pytest
import torch

from lzero.laws import BinaryConcrete, HardConcrete

THRESHOLD = math.log(11)  # 2.3979: where Eq. 13 reaches 0 and 1 with the default stretch
SHIFT = 2 / 3 * math.log(11)  # 1.5986: what β log(−γ/ζ) adds to log α


def law(log_alpha, **settings):
    return HardConcrete(torch.tensor(log_alpha, dtype=torch.float64), **settings)


@pytest.mark.parametrize(("log_alpha", "prob_active"), [(0.0, 0.8318), (1.386, 0.9519), (2.944, 0.9895)])
def test_probability_of_being_active(log_alpha, prob_active):
    assert law(log_alpha).prob_active.item() == pytest.approx(prob_active, abs=5e-5)


def test_probability_of_being_active_is_a_shifted_sigmoid():
    assert pytest.approx(1.5986, abs=5e-5) == SHIFT
    for log_alpha in (-7.0, -1.0, 0.3, 5.0):
        expected = 1 / (1 + math.exp(-(log_alpha + SHIFT)))
        assert law(log_alpha).prob_active.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("log_alpha", "estimate"), [(1.386, 0.860), (2.944, 1.0), (0.0, 0.5)])
def test_estimate_of_eq13(log_alpha, estimate):
    assert law(log_alpha).estimate("eq13").item() == pytest.approx(estimate, abs=5e-4)


def test_estimates_with_a_stretch_that_is_not_symmetric():
    skewed = law(0.4, beta=0.5, gamma=-0.3, zeta=1.05)
    assert skewed.estimate("eq13").item() == pytest.approx(1.35 / (1 + math.exp(-0.4)) - 0.3, rel=1e-12)
    assert skewed.estimate("median").item() == pytest.approx(1.35 / (1 + math.exp(-0.8)) - 0.3, rel=1e-12)


def test_mean_at_the_centre():
    assert law(0.0).mean.item() == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("estimator", "threshold", "prob_active"), [("eq13", THRESHOLD, 0.3102), ("median", SHIFT, 0.5)]
)
def test_where_an_estimator_closes_and_saturates(estimator, threshold, prob_active):
    assert law(-threshold - 1e-9).estimate(estimator) == 0
    assert law(-threshold + 1e-6).estimate(estimator) > 0
    assert law(threshold - 1e-6).estimate(estimator) < 1
    assert law(threshold + 1e-9).estimate(estimator) == 1
    assert law(-threshold).prob_active.item() == pytest.approx(prob_active, abs=5e-5)


@pytest.mark.parametrize(("estimator", "printed"), [("eq13", 2.3979), ("median", 1.5986)])
def test_the_thresholds_as_printed(estimator, printed):
    ends = law(0.0).log_alpha_for(torch.tensor([0.0, 1.0], dtype=torch.float64), estimator)
    assert ends.tolist() == pytest.approx([-printed, printed], abs=5e-5)


def test_the_estimators_give_different_networks():
    between = law(-2.0)
    assert between.estimate("eq13") > 0
    assert between.estimate("median") == 0


def test_figure_2a_puts_about_half_of_the_mass_on_the_ends():
    figure = law(0.0, beta=0.5)
    on_the_ends = (1 - figure.prob_active + figure.prob_one).item()
    assert on_the_ends == pytest.approx(0.46, abs=0.01)


@pytest.mark.parametrize("keep_rate", [0.5, 0.7])
def test_a_keep_rate_is_not_a_probability_of_being_active(keep_rate):
    log_alpha = math.log(keep_rate / (1 - keep_rate))
    assert law(log_alpha).prob_active.item() == pytest.approx({0.5: 0.83, 0.7: 0.92}[keep_rate], abs=5e-3)


def test_binary_concrete_is_eq_23_and_24():
    s = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    log_alpha, beta = torch.tensor(0.7, dtype=torch.float64), 0.4
    alpha = log_alpha.exp()
    eq23 = beta * alpha * s ** (-beta - 1) * (1 - s) ** (-beta - 1) / (alpha * s**-beta + (1 - s) ** -beta) ** 2
    eq24 = torch.sigmoid((s.log() - (1 - s).log()) * beta - log_alpha)
    concrete = BinaryConcrete(log_alpha, beta)
    torch.testing.assert_close(concrete.log_prob(s).exp(), eq23)
    torch.testing.assert_close(concrete.cdf(s), eq24)


def test_binary_concrete_agrees_with_torch():
    s = torch.linspace(0.01, 0.99, 50)
    theirs = torch.distributions.RelaxedBernoulli(torch.tensor(0.4), logits=torch.tensor(0.7))
    torch.testing.assert_close(
        BinaryConcrete(torch.tensor(0.7), 0.4).log_prob(s), theirs.log_prob(s), rtol=1e-4, atol=1e-5
    )


def test_the_cdf_of_a_stretched_base_is_0_and_1_outside_its_interval_in_double_precision():
    base = BinaryConcrete(torch.zeros(1, dtype=torch.float64), gamma=-0.1, zeta=1.1)
    assert base.cdf(torch.tensor([2.0, 1.1, -0.1, -1.0], dtype=torch.float64)).tolist() == [1.0, 1.0, 0.0, 0.0]
