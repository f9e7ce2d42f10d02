// Instruction sets: which one is active, and how a table of kernels is chosen by it.
//
// Every file in a kernels/ folder is compiled once per instruction set, inside `namespace
// polyleaf::<isa>` (POLYLEAF_ISA_NAMESPACE), and exports one constant table of function pointers.
// The rest of the core calls through `POLYLEAF_SELECT(table)`. Kernel files must not use std
// containers or algorithms: a template the linker merges across instruction sets could carry
// AVX-512 code onto a machine without it. For the same reason what kernels and the rest of the core
// both use is POLYLEAF_INLINE, or a POLYLEAF_INLINE_MEMBER: it leaves nothing to merge.
//
// Owns: the choice. Must not know: what any kernel does.
#pragma once
#include <string>
#include <vector>

#include "base/inline.h"

namespace polyleaf {

// Whether kernels have code of their own for what is usual, beside code for all (CMakeLists.txt
// says where not).
#ifdef POLYLEAF_GENERIC_KERNELS
constexpr bool kSpecialised = false;
#else
constexpr bool kSpecialised = true;
#endif

enum class Isa { baseline = 0, avx2 = 1, avx512 = 2 };

// Best instruction set of this machine, or the one POLYLEAF_ISA names. Read once, at first use.
// Throws std::invalid_argument where POLYLEAF_ISA names one that is unknown or that this CPU lacks.
Isa active_isa();
const char* isa_name(Isa isa);
std::vector<std::string> available_isas();

}  // namespace polyleaf

// Declares one kernel table for every instruction set. Use in a header at namespace polyleaf.
#ifdef POLYLEAF_X86
#define POLYLEAF_DECLARE_KERNELS(Table, table) \
  namespace baseline {                         \
  extern const Table table;                    \
  }                                            \
  namespace avx2 {                             \
  extern const Table table;                    \
  }                                            \
  namespace avx512 {                           \
  extern const Table table;                    \
  }
#define POLYLEAF_SELECT(table)                                                     \
  (::polyleaf::active_isa() == ::polyleaf::Isa::avx512 ? ::polyleaf::avx512::table \
   : ::polyleaf::active_isa() == ::polyleaf::Isa::avx2 ? ::polyleaf::avx2::table   \
                                                       : ::polyleaf::baseline::table)
#else
#define POLYLEAF_DECLARE_KERNELS(Table, table) \
  namespace baseline {                         \
  extern const Table table;                    \
  }
#define POLYLEAF_SELECT(table) (::polyleaf::baseline::table)
#endif
