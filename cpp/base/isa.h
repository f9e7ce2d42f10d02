// Instruction sets: which one is active, and how a kernel table is selected by it.
//
// Every file in a kernels/ folder is compiled once per instruction set, inside `namespace
// polyleaf::<isa>` (POLYLEAF_ISA_NAMESPACE), and exports one constant table of function pointers.
// The rest of the core calls through `POLYLEAF_SELECT(table)`. Kernel files must not use std
// containers or algorithms: a template that the linker merges across instruction sets could carry
// AVX-512 code to a machine without it. For the same reason, code that kernels and the rest of the
// core share is POLYLEAF_INLINE or POLYLEAF_INLINE_MEMBER.
#pragma once
#include <string>
#include <vector>

#include "base/inline.h"

namespace polyleaf {

// True if kernels have specialised code for common cases besides the general code (see
// CMakeLists.txt).
#ifdef POLYLEAF_GENERIC_KERNELS
constexpr bool kSpecialised = false;
#else
constexpr bool kSpecialised = true;
#endif

// The instruction sets, each better than the one before it: a name, and the namespace of its
// kernels. Another one needs its kernels in cpp/CMakeLists.txt, a function in isa.cpp, and its
// vectors in kernels/lanes.h. POLYLEAF_ISAS(X, ...) is X(isa, ...) for each that the build has
// (option POLYLEAF_ISAS of CMake). The lowest one is the baseline, except in a build for one CPU.
#ifndef POLYLEAF_LOWEST_ISA
#define POLYLEAF_LOWEST_ISA baseline
#endif
// Expand the arguments before X quotes or joins them.
#define POLYLEAF_APPLY(X, ...) X(__VA_ARGS__)
#ifdef POLYLEAF_HAS_AVX2
#define POLYLEAF_IF_AVX2(X, ...) X(avx2 __VA_OPT__(, ) __VA_ARGS__)
#else
#define POLYLEAF_IF_AVX2(X, ...)
#endif
#ifdef POLYLEAF_HAS_AVX512
#define POLYLEAF_IF_AVX512(X, ...) X(avx512 __VA_OPT__(, ) __VA_ARGS__)
#else
#define POLYLEAF_IF_AVX512(X, ...)
#endif
#define POLYLEAF_ISAS(X, ...)                                       \
  POLYLEAF_APPLY(X, POLYLEAF_LOWEST_ISA __VA_OPT__(, ) __VA_ARGS__) \
  POLYLEAF_IF_AVX2(X __VA_OPT__(, ) __VA_ARGS__)                    \
  POLYLEAF_IF_AVX512(X __VA_OPT__(, ) __VA_ARGS__)

#define POLYLEAF_NAME_ISA(isa) isa,
enum class Isa { POLYLEAF_ISAS(POLYLEAF_NAME_ISA) };

// Return the best instruction set of this machine, or the one that POLYLEAF_ISA names. Read once,
// at first use. Throws std::invalid_argument if POLYLEAF_ISA names one that is unknown, or that
// this CPU or this build lacks; std::runtime_error if this CPU lacks all those of the build.
Isa active_isa();
const char* isa_name(Isa isa);
std::vector<std::string> available_isas();

}  // namespace polyleaf

// Declare one kernel table for every instruction set. Use in a header, in namespace polyleaf.
#define POLYLEAF_DECLARE_TABLE(isa, Table, table) \
  namespace isa {                                 \
  extern const Table table;                       \
  }
#define POLYLEAF_DECLARE_KERNELS(Table, table) POLYLEAF_ISAS(POLYLEAF_DECLARE_TABLE, Table, table)

// The kernel table of the active instruction set.
#define POLYLEAF_TABLE_IF_ACTIVE(isa, table) \
  ::polyleaf::active_isa() == ::polyleaf::Isa::isa ? ::polyleaf::isa::table:
#define POLYLEAF_SELECT(table) \
  (POLYLEAF_ISAS(POLYLEAF_TABLE_IF_ACTIVE, table)::polyleaf::POLYLEAF_LOWEST_ISA::table)
