#include "data/xmc_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/parallel.h"

#if defined(__APPLE__)
#include <xlocale.h>
#else
#include <clocale>
#endif

namespace polyleaf {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;  // bytes per task

struct RowError {
  std::string what;
};

[[noreturn]] void fail(const std::string& what) {
  throw RowError{what};
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Return the word at `at`, for a message.
std::string word(const char* at, const char* end) {
  const char* stop = at;
  while (stop < end && !is_space(*stop) && stop - at < 30) ++stop;
  return "'" + std::string(at, stop) + "'";
}

const char* skip_spaces(const char* at, const char* end) {
  while (at < end && is_space(*at)) ++at;
  return at;
}

// Read a non-negative integer below `limit`.
const char* read_index(const char* at, const char* end, int64_t limit, const char* noun,
                       int32_t& out) {
  if (at == end || !is_digit(*at)) fail(word(at, end) + " is no " + noun);
  const char* start = at;
  int64_t value = 0;
  for (; at < end && is_digit(*at); ++at) {
    value = 10 * value + (*at - '0');
    if (value >= limit) {
      while (at < end && is_digit(*at)) ++at;
      fail(std::string(noun) + " " + std::string(start, std::min(at, start + 30)) +
           " is outside 0 .. " + std::to_string(limit - 1));
    }
  }
  out = static_cast<int32_t>(value);
  return at;
}

// As std::from_chars, which libc++ has for floating point since LLVM 20, and that of macOS since
// macOS 26.
std::from_chars_result parse_double(const char* first, const char* last, double& value) {
#if !defined(_LIBCPP_VERSION) || (_LIBCPP_VERSION >= 200000 && !defined(__APPLE__))
  return std::from_chars(first, last, value);
#else
  static const locale_t classic = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string_view characters = "+-.0123456789eEinfatyINFATY";  // none of hexadecimal numbers
  const auto is_other = [&](char c) { return characters.find(c) == characters.npos; };
  const std::string text(first, std::find_if(first, last, is_other));
  char* rest;
  value = strtod_l(text.c_str(), &rest, classic);
  if (rest == text.c_str() || *first == '+') return {first, std::errc::invalid_argument};
  const bool is_outside = value == 0 ? text.find_first_of("123456789") < text.find_first_of("eE")
                                     : std::isinf(value) && is_digit(rest[-1]);
  return {first + (rest - text.c_str()), is_outside ? std::errc::result_out_of_range : std::errc()};
#endif
}

// As std::to_chars, which libc++ has for floating point since LLVM 14 only.
template <class T>
char* write_number(char* first, char* last, T x) {
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 14000
  if constexpr (std::is_floating_point_v<T>)
    return first + std::snprintf(first, static_cast<size_t>(last - first), "%.9g", double{x});
  else
#endif
    return std::to_chars(first, last, x).ptr;
}

// Return whether a number outside the range of double is too small rather than too large.
bool is_tiny(const char* at, const char* end) {
  if (at < end && *at == '-') ++at;
  const std::string text(at, end);
  return text.find("e-") != std::string::npos || text.find("E-") != std::string::npos ||
         text[0] == '.' || text.compare(0, 2, "0.") == 0;
}

// Read a finite number. Up to 15 digits and small exponents are exact in double arithmetic; the
// library handles the rest.
const char* read_value(const char* at, const char* end, float& out) {
  static constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char* start = at;
  if (at < end && *at == '+') ++at;
  const char* number = at;
  const bool negative = at == start && at < end && *at == '-';
  if (negative) ++at;
  int64_t mantissa = 0;
  int n_digits = 0, n_decimals = 0;
  for (; at < end && is_digit(*at); ++at, ++n_digits) mantissa = 10 * mantissa + (*at - '0');
  if (at < end && *at == '.') {
    ++at;
    for (; at < end && is_digit(*at); ++at, ++n_digits, ++n_decimals)
      mantissa = 10 * mantissa + (*at - '0');
  }
  double value;
  const bool plain = n_digits > 0 && n_digits <= 15 && (at == end || (*at != 'e' && *at != 'E'));
  if (plain) {
    value = static_cast<double>(mantissa) / kPowers[n_decimals];
    if (negative) value = -value;
  } else {
    const std::from_chars_result result = parse_double(number, end, value);
    if (result.ec == std::errc::invalid_argument || (number != start && *number == '-'))
      fail(word(start, end) + " is no number");
    if (result.ec == std::errc::result_out_of_range)
      value = is_tiny(number, result.ptr) ? 0.0 : HUGE_VAL;
    at = result.ptr;
  }
  out = static_cast<float>(value);
  if (!std::isfinite(out)) fail(word(start, end) + " is no finite number that float32 can hold");
  return at;
}

// Rows of one chunk of text, and the error that stopped it.
struct Chunk {
  TextRows rows;
  int64_t n_lines = 0;  // line ends that were read
  std::string error;
};

class Reader {
 public:
  Reader(RowSyntax syntax, const XmcTextLimits& limits, Chunk& chunk)
      : syntax_(syntax), limits_(limits), rows_(chunk.rows), chunk_(chunk) {}

  void read(const char* at, const char* end) {
    while (at < end) {
      const char* stop =
          static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
      const char* line_end = stop != nullptr ? stop : end;
      try {
        line(at, line_end);
      } catch (const RowError& error) {
        chunk_.error = error.what;
        return;
      }
      if (stop == nullptr) return;
      ++chunk_.n_lines;
      at = stop + 1;
    }
  }

 private:
  void line(const char* at, const char* end) {
    if (syntax_ == RowSyntax::labelled) at = labels(at, end);
    pairs(at, end);
    end_of_row();
  }

  // Read the labels, if the line starts with any.
  const char* labels(const char* at, const char* end) {
    if (at == end || is_space(*at)) return at;
    const char* stop = at;
    while (stop < end && !is_space(*stop) && *stop != ':') ++stop;
    if (stop < end && *stop == ':') return at;
    for (;;) {
      int32_t label;
      at = read_index(at, stop, limits_.n_labels, "label", label);
      rows_.labels.push_back(label);
      if (at == stop) return at;
      if (*at != ',') fail(word(at, stop) + " follows a label; labels are parted by commas");
      ++at;
    }
  }

  void pairs(const char* at, const char* end) {
    for (at = skip_spaces(at, end); at < end; at = skip_spaces(at, end)) {
      const char* start = at;
      int32_t index;
      at = read_index(at, end, limits_.n_features, "feature", index);
      if (at == end || *at != ':') fail(word(start, end) + " is no feature:value");
      at = value(index, at + 1, end);
      if (at < end && !is_space(*at)) fail(word(start, end) + " is no feature:value");
    }
  }

  const char* value(int32_t index, const char* at, const char* end) {
    float x;
    at = read_value(at, end, x);
    rows_.indices.push_back(index);
    rows_.values.push_back(x);
    return at;
  }

  void end_of_row() {
    sort_labels();
    sort_features();
    rows_.label_indptr.push_back(static_cast<int64_t>(rows_.labels.size()));
    rows_.indptr.push_back(static_cast<int64_t>(rows_.indices.size()));
  }

  void sort_labels() {
    const auto begin =
        rows_.labels.begin() + (rows_.label_indptr.empty() ? 0 : rows_.label_indptr.back());
    const auto end = rows_.labels.end();
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    const auto twice = std::adjacent_find(begin, end);
    if (twice != end) fail("label " + std::to_string(*twice) + " comes twice");
  }

  void sort_features() {
    const size_t begin = rows_.indptr.empty() ? 0 : static_cast<size_t>(rows_.indptr.back());
    const size_t n = rows_.indices.size() - begin;
    int32_t* indices = rows_.indices.data() + begin;
    float* values = rows_.values.data() + begin;
    bool ascends = true, has_zero = false;
    for (size_t i = 0; i < n; ++i) {
      ascends = ascends && (i == 0 || indices[i - 1] < indices[i]);
      has_zero = has_zero || values[i] == 0.0f;
    }
    if (!ascends) {
      order_.clear();
      for (size_t i = 0; i < n; ++i) order_.emplace_back(indices[i], values[i]);
      std::stable_sort(order_.begin(), order_.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < n; ++i) {
        if (i > 0 && order_[i - 1].first == order_[i].first)
          fail("feature " + std::to_string(order_[i].first) + " comes twice");
        indices[i] = order_[i].first;
        values[i] = order_[i].second;
      }
    }
    if (!has_zero) return;
    size_t kept = 0;
    for (size_t i = 0; i < n; ++i)
      if (values[i] != 0.0f) {
        indices[kept] = indices[i];
        values[kept++] = values[i];
      }
    rows_.indices.resize(begin + kept);
    rows_.values.resize(begin + kept);
  }

  RowSyntax syntax_;
  XmcTextLimits limits_;
  TextRows& rows_;
  Chunk& chunk_;
  std::vector<std::pair<int32_t, float>> order_;
};

// Return the ends of the chunks: after the first line end at or after every kChunk bytes.
std::vector<int64_t> chunk_ends(const char* text, int64_t size) {
  std::vector<int64_t> ends;
  for (int64_t at = 0; at < size;) {
    int64_t end = std::min(size, at + kChunk);
    if (end < size) {
      const void* stop = std::memchr(text + end, '\n', static_cast<size_t>(size - end));
      end = stop == nullptr ? size : static_cast<const char*>(stop) - text + 1;
    }
    ends.push_back(end);
    at = end;
  }
  return ends;
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
  std::vector<T>().swap(from);
}

void append_indptr(std::vector<int64_t>& to, const std::vector<int64_t>& from) {
  const int64_t base = to.back();
  for (int64_t x : from) to.push_back(base + x);
}

}  // namespace

TextRows read_xmc_text(const char* text, int64_t size, RowSyntax syntax,
                       const XmcTextLimits& limits, int64_t first_line, const Context& context) {
  const std::vector<int64_t> ends = chunk_ends(text, size);
  std::vector<Chunk> chunks(ends.size());
  parallel_for(context, static_cast<int64_t>(ends.size()), [&](int64_t c, int) {
    Reader(syntax, limits, chunks[c]).read(text + (c == 0 ? 0 : ends[c - 1]), text + ends[c]);
  });
  int64_t line = first_line;
  size_t n_rows = 1, n_labels = 0, n_values = 0;
  for (const Chunk& chunk : chunks) {
    line += chunk.n_lines;
    if (!chunk.error.empty())
      throw std::invalid_argument("line " + std::to_string(line) + ": " + chunk.error + ".");
    n_rows += chunk.rows.indptr.size();
    n_labels += chunk.rows.labels.size();
    n_values += chunk.rows.values.size();
  }
  TextRows all;
  all.label_indptr.reserve(n_rows);
  all.indptr.reserve(n_rows);
  all.labels.reserve(n_labels);
  all.indices.reserve(n_values);
  all.values.reserve(n_values);
  all.label_indptr.push_back(0);
  all.indptr.push_back(0);
  for (Chunk& chunk : chunks) {
    append_indptr(all.label_indptr, chunk.rows.label_indptr);
    append_indptr(all.indptr, chunk.rows.indptr);
    append(all.labels, chunk.rows.labels);
    append(all.indices, chunk.rows.indices);
    append(all.values, chunk.rows.values);
  }
  return all;
}

std::string write_xmc_text(const RowsToWrite& rows) {
  std::string text;
  char number[32];
  const auto add = [&](auto x) {
    text.append(number, write_number(number, number + sizeof(number), x));
  };
  for (int64_t i = 0; i < rows.n_rows; ++i) {
    if (rows.labels != nullptr) {
      for (int64_t at = rows.label_indptr[i]; at < rows.label_indptr[i + 1]; ++at) {
        if (at > rows.label_indptr[i]) text += ',';
        add(rows.labels[at]);
      }
      if (rows.indptr[i] < rows.indptr[i + 1]) text += ' ';
    }
    for (int64_t at = rows.indptr[i]; at < rows.indptr[i + 1]; ++at) {
      if (at > rows.indptr[i]) text += ' ';
      add(static_cast<int64_t>(rows.indices[at]) + rows.index_base);
      text += ':';
      add(rows.values[at]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace polyleaf
