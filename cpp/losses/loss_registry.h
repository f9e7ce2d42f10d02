// A loss by its name: one line of a table of kernels, and the numbers that go with it.
//
// Owns: names and numbers of losses. Must not know: what losses compute, or what their kernels are
// handed.
#pragma once
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "losses/loss_params.h"

namespace polyleaf {

template <class Kernels>
struct LossTable {
  const Kernels* first;
  int n;
};

// `Kernels` has a `name` and the names of `parameters`, nullptr behind the last; `kTable` gives
// those of the instruction set in use.
template <class Kernels, LossTable<Kernels> (*kTable)()>
class NamedLoss {
 public:
  using Parameters = std::map<std::string, float>;

  // Throws std::invalid_argument where there is no such loss, or its parameters are others.
  NamedLoss(const std::string& name, const Parameters& parameters) {
    for (index_ = 0; index_ < kTable().n && name != kernels().name;) ++index_;
    if (index_ == kTable().n) throw std::invalid_argument("The core has no loss \"" + name + "\".");
    const std::vector<std::string> expected = names(kernels().parameters);
    for (const auto& [parameter, value] : parameters)
      if (std::find(expected.begin(), expected.end(), parameter) == expected.end())
        throw std::invalid_argument("Loss \"" + name + "\" has no parameter \"" + parameter +
                                    "\".");
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto given = parameters.find(expected[i]);
      if (given == parameters.end())
        throw std::invalid_argument("Loss \"" + name + "\" needs the parameter \"" + expected[i] +
                                    "\".");
      params_[i] = given->second;
    }
  }

  const Kernels& kernels() const { return kTable().first[index_]; }
  const LossParams& params() const { return params_; }
  int index() const { return index_; }  // in the table

  // The losses there are, each with the names of its parameters.
  static std::map<std::string, std::vector<std::string>> available() {
    std::map<std::string, std::vector<std::string>> found;
    for (int i = 0; i < kTable().n; ++i)
      found[kTable().first[i].name] = names(kTable().first[i].parameters);
    return found;
  }

 private:
  static std::vector<std::string> names(const char* const* parameters) {
    std::vector<std::string> found;
    for (int i = 0; i < kMaxLossParams && parameters[i] != nullptr; ++i)
      found.emplace_back(parameters[i]);
    return found;
  }

  int index_;
  LossParams params_ = {};
};

}  // namespace polyleaf
