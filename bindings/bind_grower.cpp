#include "arrays.h"

namespace polyleaf {

void bind_grower(nb::module_& m) { (void)m; }

}  // namespace polyleaf
