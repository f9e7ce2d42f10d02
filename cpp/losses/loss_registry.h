// Registry of losses: a loss by name, as an entry of a table of kernels, with its parameters.
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

// `Kernels` has a `name` and the names of `parameters`, followed by nullptr; `kTable` returns the
// table of the instruction set in use.
template <class Kernels, LossTable<Kernels> (*kTable)()>
class NamedLoss {
 public:
  using Parameters = std::map<std::string, float>;

  // Throws std::invalid_argument if there is no such loss or the parameters do not match.
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
  int index() const { return index_; }  // index in the table

  // Return the names of all losses with the names of their parameters.
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
