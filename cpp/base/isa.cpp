#include "base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#ifdef POLYLEAF_X86
#include <cpuid.h>
#endif

namespace polyleaf {
namespace {

#define POLYLEAF_QUOTE_ISA(isa) #isa,
constexpr const char* kIsaNames[] = {POLYLEAF_ISAS(POLYLEAF_QUOTE_ISA)};

// Return whether this CPU has an instruction set.
[[maybe_unused]] bool has_baseline() {
  return true;
}
#ifdef POLYLEAF_X86
// __builtin_cpu_supports is always false with the run-time library of zig: this reads the same
// bits. The registers that the operating system saves (xcr0), and the features of leaves 1 and 7.
struct Features {
  unsigned saved = 0, c1 = 0, b7 = 0;
};
__attribute__((target("xsave"))) Features read_features() {
  Features features;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  features.c1 = c;
  if (c & bit_OSXSAVE) features.saved = static_cast<unsigned>(__builtin_ia32_xgetbv(0));
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) features.b7 = b;
  return features;
}
constexpr bool has_all(unsigned features, unsigned needed) {
  return (features & needed) == needed;
}
[[maybe_unused]] bool has_avx2() {
  const Features features = read_features();
  return has_all(features.saved, 0x6) && has_all(features.c1, bit_AVX | bit_POPCNT) &&
         has_all(features.b7, bit_AVX2 | bit_BMI | bit_BMI2);
}
[[maybe_unused]] bool has_avx512() {
  const Features features = read_features();
  return has_avx2() && has_all(features.saved, 0xe6) &&
         has_all(features.b7,
                 bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD);
}
#endif
#define POLYLEAF_CPU_HAS(isa) &has_##isa,
constexpr bool (*kCpuHas[])() = {POLYLEAF_ISAS(POLYLEAF_CPU_HAS)};

Isa choose() {
  const std::vector<std::string> available = available_isas();
  if (available.empty())
    throw std::runtime_error(
        std::string("This build of polyleaf is for CPUs with ") + kIsaNames[0] +
        ", which this one lacks; install polyleaf again on this machine (pip install "
        "--force-reinstall --no-cache-dir), or build it with POLYLEAF_ISAS=all for every CPU.");
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
  throw std::invalid_argument(message + " is unknown or not in this build, which has " + names +
                              "; build with POLYLEAF_ISAS=all for every instruction set.");
}

}  // namespace

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

const char* isa_name(Isa isa) {
  return kIsaNames[static_cast<size_t>(isa)];
}

// A CPU with one instruction set has all those that come before it.
std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kIsaNames) && kCpuHas[i](); ++i)
    names.emplace_back(kIsaNames[i]);
  return names;
}

}  // namespace polyleaf
