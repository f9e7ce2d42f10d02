#include "device/array.h"

#include <algorithm>
#include <string>
#include <vector>

namespace polyleaf {
DeviceArray::DeviceArray(std::shared_ptr<const Device> device, const DeviceView& view)
    : device_(device), own_(std::move(device)), view_(view) {
  if (view.n_rows > 0 && view.n_columns > 0) device_->check_owns(view.data);
}

DeviceArray::DeviceArray(std::shared_ptr<const Device> device, int64_t n_rows, int64_t n_columns)
    : device_(device), own_(std::move(device)), view_{} {
  own_.reserve(static_cast<size_t>(n_rows * n_columns));
  constexpr ptrdiff_t kSize = sizeof(double);
  view_ = {reinterpret_cast<DeviceAddress>(own_.data()),
           ValueType::f64,
           n_rows,
           n_columns,
           n_columns * kSize,
           kSize};
}

size_t DeviceArray::item_size() const {
  return value_size(view_.type);
}

on_device::Numbers DeviceArray::rows(int64_t begin, int64_t end) const {
  const auto* const data = reinterpret_cast<const char*>(view_.data);
  return {data + begin * view_.row_stride,
          end - begin,
          view_.row_stride,
          view_.column_stride,
          static_cast<int32_t>(view_.n_columns),
          static_cast<int32_t>(view_.type)};
}

void DeviceArray::read(const int64_t* rows, int64_t n, void* to) const {
  const auto row_bytes = std::max<int64_t>(1, view_.n_columns * static_cast<int64_t>(item_size()));
  const int64_t block_rows = std::max<int64_t>(1, kTransferBytes / row_bytes);
  DeviceBuffer<char> gathered(device_);
  DeviceBuffer<int64_t> chosen(device_);
  for (int64_t begin = 0; begin < n; begin += block_rows) {
    const int64_t m = std::min(block_rows, n - begin);
    gathered.reserve(static_cast<size_t>(m * row_bytes));
    if (rows != nullptr) chosen.write(rows + begin, static_cast<size_t>(m));
    device_->launch(
        device_->grid_for(m * std::max<int64_t>(1, view_.n_columns)),
        on_device::GatherRows{rows != nullptr ? numbers() : this->rows(begin, begin + m),
                              rows != nullptr ? chosen.data() : nullptr, m,
                              static_cast<int32_t>(item_size()), gathered.data()});
    gathered.read(static_cast<char*>(to) + begin * row_bytes,
                  static_cast<size_t>(m * view_.n_columns) * item_size());
  }
}

int64_t DeviceArray::find_infinity() const {
  if (view_.type != ValueType::f32 && view_.type != ValueType::f64) return -1;
  DeviceBuffer<uint64_t> first(device_);
  first.write({~uint64_t{0}});
  device_->launch(device_->grid_for(view_.n_rows * view_.n_columns),
                  on_device::FindInfinity{numbers(), first.data()});
  return static_cast<int64_t>(first.read(1)[0]);
}

}  // namespace polyleaf
