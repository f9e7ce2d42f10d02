#include "arrays.h"

namespace polyleaf {

void bind_predict(nb::module_& m) { (void)m; }

}  // namespace polyleaf
