#include "arrays.h"

namespace polyleaf {

void bind_objectives(nb::module_& m) { (void)m; }

}  // namespace polyleaf
