// Types of numbers at the border: those of arrays, and those that the core reads.
#pragma once
#include "arrays.h"
#include "data/binning.h"

namespace polyleaf {

// Booleans are read as bytes.
inline ValueType to_value_type(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::Float && dtype.bits == 32) return ValueType::f32;
  if (code == Code::Float && dtype.bits == 64) return ValueType::f64;
  const bool is_unsigned = code == Code::UInt || code == Code::Bool;
  require(dtype.lanes == 1 && (is_unsigned || code == Code::Int),
          "Columns must be float32, float64 or integers of 8 to 64 bits.");
  switch (dtype.bits) {
    case 8:
      return is_unsigned ? ValueType::u8 : ValueType::i8;
    case 16:
      return is_unsigned ? ValueType::u16 : ValueType::i16;
    case 32:
      return is_unsigned ? ValueType::u32 : ValueType::i32;
    default:
      return is_unsigned ? ValueType::u64 : ValueType::i64;
  }
}

inline nb::dlpack::dtype to_dlpack_type(ValueType type) {
  using Code = nb::dlpack::dtype_code;
  const bool is_float = type == ValueType::f32 || type == ValueType::f64;
  const Code code = is_float                          ? Code::Float
                    : static_cast<int>(type) % 2 == 0 ? Code::UInt
                                                      : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * value_size(type)), 1};
}

}  // namespace polyleaf
