// Assertions of what comments promise: POLYLEAF_DCHECK(condition). They are on in sanitizer builds
// and in builds with the core's own tests (CMake: POLYLEAF_CHECKED); elsewhere nothing is
// evaluated. A function may only rely on what its callers or the bindings have checked; input of
// users is rejected by exceptions, never by assertions.
#pragma once

#if defined(POLYLEAF_CHECKED)
#include <cstdio>
#include <cstdlib>

namespace polyleaf {

[[noreturn]] inline void fail_check(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: %s is false\n", file, line, condition);
  std::abort();
}

}  // namespace polyleaf

#define POLYLEAF_DCHECK(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::polyleaf::fail_check(__FILE__, __LINE__, #__VA_ARGS__))
#else
#define POLYLEAF_DCHECK(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))
#endif
