// Derivatives and Hessians: each entry is written, none beyond the last, by one and three threads.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "digest.h"
#include "losses/objectives.h"
#include "problem.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// All losses of a table by name; all parameters are 1.
template <class AnyLoss>
std::vector<std::pair<std::string, AnyLoss>> every_loss() {
  std::vector<std::pair<std::string, AnyLoss>> losses;
  for (const auto& [name, parameters] : AnyLoss::available()) {
    typename AnyLoss::Parameters ones;
    for (const std::string& parameter : parameters) ones[parameter] = 1.0f;
    losses.emplace_back(name, AnyLoss(name, ones));
  }
  return losses;
}

// Each entry is written, none beyond the last, by one and three threads.
void test_hessians(const LossInput& given) {
  for (int64_t k : {2, 3, 16, 17}) {
    std::vector<int32_t> label(given.label, given.label + given.n_rows);
    for (auto& c : label) c %= static_cast<int32_t>(k);
    std::vector<float> offset(k, 0.1f);
    LossInput input = given;
    input.n_rows = std::min(given.n_rows, given.n_rows * given.n_outputs / k);
    input.n_outputs = k;
    input.label = label.data();
    input.offset = offset.data();
    const size_t size = input.n_rows * packed_size(k);
    std::vector<float> g(input.n_rows * k);
    for (const auto& [name, loss] : every_loss<ClassLoss>()) {
      auto one = std::make_unique<float[]>(size), three = std::make_unique<float[]>(size);
      std::fill_n(one.get(), size, NAN);
      hessians(loss, input, g.data(), one.get(), 1);
      hessians(loss, input, g.data(), three.get(), 3);
      for (size_t i = 0; i < size; ++i) CHECK(std::isfinite(one[i]) && one[i] == three[i]);
      CHECK(mean_loss(loss, input, 1) == mean_loss(loss, input, 3));
      note("loss " + name, std::vector<float>(one.get(), one.get() + size));
    }
  }
}

}  // namespace

void test_objectives() {
  const int64_t n = 1003, k = 5;
  std::mt19937 random(3);
  const Normal normal;
  std::vector<float> raw(n * k), target(n * k), g(n * k), h(n * k), offset(k, 0.1f),
      parameter(k, 0.5f);
  std::vector<int32_t> label(n);
  for (auto& x : raw) x = 3 * normal(random);
  for (auto& y : target) y = normal(random) > 0 ? 1.0f : 0.0f;
  for (auto& c : label) c = static_cast<int32_t>(random() % k);
  LossInput input;
  input.n_rows = n;
  input.n_outputs = k;
  input.raw = raw.data();
  input.target = target.data();
  input.label = label.data();
  input.offset = offset.data();
  input.parameter = parameter.data();
  for (const auto& [name, loss] : every_loss<Loss>()) {
    derivatives(loss, input, g.data(), loss.kernels().unit_hessian ? nullptr : h.data(), k, 3);
    for (float x : g) CHECK(std::isfinite(x));
    note("loss " + name, g);
    if (!loss.kernels().unit_hessian) note("loss " + name, h);
    note("loss " + name, std::vector<double>{mean_loss(loss, input, 1)});
    CHECK(mean_loss(loss, input, 1) == mean_loss(loss, input, 3));
  }
  derivatives(ClassLoss("softmax", {{"factor", 1.0f}}), input, g.data(), h.data(), 2);
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += g[i * k + j];
    CHECK(std::fabs(sum) < 1e-5f);
  }
  test_hessians(input);
}

}  // namespace polyleaf::tests
