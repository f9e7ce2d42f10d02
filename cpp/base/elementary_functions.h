// Elementary functions in float64, correctly rounded: the float64 nearest to the exact value, so
// that base scores have the same bits with any library and on any processor. Only +, -, * and /
// are used. Errors before the rounding are below 2^-100 of the value; each call takes about 0.1
// microseconds.
#pragma once

namespace polyleaf {

double rounded_exp(double x);  // results below 2^-1022 may be rounded twice
double rounded_log(double x);
double rounded_log1p(double x);

// digamma(x) - ln x for x > 0, by the recurrence and the asymptotic series of Abramowitz and
// Stegun, 6.3.5 and 6.3.18. Not correctly rounded.
double digamma_excess(double x);

}  // namespace polyleaf
