#include "arrays.h"

namespace polyleaf {

void bind_binning(nb::module_& m) { (void)m; }

}  // namespace polyleaf
