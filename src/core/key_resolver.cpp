#include "idempotency/key_resolver.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {
namespace {

constexpr std::string_view white_space = " \t";

// Not <cctype>: the answer must not depend on the process's locale.
constexpr char lower(char character) noexcept {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

}  // namespace

void throw_missing_key(const char* message, std::string detail) {
  throw Error(Errc::missing_key, message, std::move(detail));
}

void throw_ambiguous_header(std::string_view name) {
  throw Error(Errc::invalid_key,
              "A header that names the key is sent with different values; refuse the request.",
              std::string(name));
}

bool same_header_name(std::string_view left, std::string_view right) noexcept {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (lower(left[i]) != lower(right[i])) return false;
  }
  return true;
}

std::string_view header_value(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(white_space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(white_space) - first + 1);
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
