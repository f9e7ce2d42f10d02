#include "base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace polyleaf {
namespace {

#define POLYLEAF_QUOTE_ISA(isa) #isa,
constexpr const char* kIsaNames[] = {POLYLEAF_ISAS(POLYLEAF_QUOTE_ISA)};

bool cpu_has(Isa isa) {
#ifdef POLYLEAF_X86
  __builtin_cpu_init();
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    case Isa::avx512:
      return cpu_has(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  }
  return false;
#else
  return isa == Isa::baseline;
#endif
}

Isa choose() {
  const std::vector<std::string> available = available_isas();
  const char* forced = std::getenv("POLYLEAF_ISA");
  if (forced == nullptr || *forced == '\0') return static_cast<Isa>(available.size() - 1);
  const auto found = std::find(available.begin(), available.end(), forced);
  if (found != available.end()) return static_cast<Isa>(found - available.begin());
  const std::string message = std::string("POLYLEAF_ISA=") + forced;
  std::string names;
  for (const char* name : kIsaNames) {
    if (std::string(name) == forced)
      throw std::invalid_argument(
          message + " is not supported by this CPU; unset it to use the best instruction set.");
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument(message + " is unknown; it must be one of " + names + ".");
}

}  // namespace

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

const char* isa_name(Isa isa) {
  return kIsaNames[static_cast<size_t>(isa)];
}

// A CPU with one instruction set has all that come before it.
std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kIsaNames) && cpu_has(static_cast<Isa>(i)); ++i)
    names.emplace_back(kIsaNames[i]);
  return names;
}

}  // namespace polyleaf
