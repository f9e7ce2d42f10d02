#include "base/isa.h"

#include <cstdlib>
#include <stdexcept>

namespace polyleaf {
namespace {

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
  const char* forced = std::getenv("POLYLEAF_ISA");
  if (forced != nullptr && *forced != '\0') {
    for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
      if (std::string(forced) != isa_name(isa)) continue;
      if (!cpu_has(isa))
        throw std::invalid_argument(
            std::string("POLYLEAF_ISA=") + forced +
            " is not supported by this CPU; unset it to use the best instruction set.");
      return isa;
    }
    throw std::invalid_argument(std::string("POLYLEAF_ISA=") + forced +
                                " is unknown; it must be one of baseline, avx2, avx512.");
  }
  for (Isa isa : {Isa::avx512, Isa::avx2})
    if (cpu_has(isa)) return isa;
  return Isa::baseline;
}

}  // namespace

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    default:
      return "baseline";
  }
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (cpu_has(isa)) names.emplace_back(isa_name(isa));
  return names;
}

}  // namespace polyleaf
