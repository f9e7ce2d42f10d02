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

enum class Isa { baseline = 0, avx2 = 1, avx512 = 2 };

// Return the best instruction set of this machine, or the one that POLYLEAF_ISA names. Read once,
// at first use. Throws std::invalid_argument if POLYLEAF_ISA names one that is unknown or that this
// CPU lacks.
Isa active_isa();
const char* isa_name(Isa isa);
std::vector<std::string> available_isas();

}  // namespace polyleaf

// Declare one kernel table for every instruction set. Use in a header, in namespace polyleaf.
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
