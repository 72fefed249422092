#include "idempotency/edges/http_key.hpp"

#include <optional>
#include <utility>

#include "edges/http_text.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using namespace detail::http;

/// Reads an Item of RFC 9651 off the front of a field's value. Each `read_` or `skip_` says whether there was what it reads.
class ItemReader {
 public:
  explicit ItemReader(std::string_view text) noexcept : rest_(text) {}

  [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }
  [[nodiscard]] bool at(char c) const noexcept { return !rest_.empty() && rest_.front() == c; }

  /// Section 4.2.5.
  std::optional<std::string> read_string() {
    std::string text;
    if (!skip('"')) return std::nullopt;
    while (!rest_.empty()) {
      const char c = take();
      if (c == '"') return text;
      if (c == '\\') {
        if (!at('"') && !at('\\')) return std::nullopt;
        text += take();
      } else if (c >= 0x20 && c < 0x7f) {
        text += c;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  /// What clients send that know nothing of structured fields.
  std::optional<std::string> read_bare() {
    std::string text;
    while (!rest_.empty() && is_visible(rest_.front()) && !at('"') && !at('\\') && !at(',') &&
           !at(';')) {
      text += take();
    }
    if (text.empty()) return std::nullopt;
    return text;
  }

  /// Section 4.2.3.2; their values are checked and forgotten.
  bool skip_parameters() {
    while (skip(';')) {
      skip_all([](char c) { return c == ' '; });
      if (rest_.empty() || !(is_lower(rest_.front()) || at('*'))) return false;
      skip_all([](char c) {
        return is_lower(c) || is_digit(c) || c == '_' || c == '-' || c == '.' || c == '*';
      });
      if (skip('=') && !skip_bare_item()) return false;
    }
    return true;
  }

 private:
  char take() noexcept {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool skip(char c) noexcept {
    if (!at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  template <class Predicate>
  std::size_t skip_all(Predicate belongs) noexcept {
    std::size_t count = 0;
    for (; !rest_.empty() && belongs(rest_.front()); ++count)
      rest_.remove_prefix(1);
    return count;
  }

  bool skip_bare_item() {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    if (c == '"') return read_string().has_value();
    if (c == '-' || is_digit(c)) return skip_number(Fraction::allowed);
    if (c == '@') return skip('@') && skip_number(Fraction::refused);
    if (c == '?') return skip('?') && (skip('0') || skip('1'));
    if (c == ':') return skip_byte_sequence();
    if (c == '%') return skip('%') && skip_display_string();
    if (is_letter(c) || c == '*') {
      skip_all([](char d) { return is_token_character(d) || d == ':' || d == '/'; });
      return true;
    }
    return false;
  }
  enum class Fraction { allowed, refused };
  /// Sections 4.2.4 and 4.2.9.
  bool skip_number(Fraction fraction) {
    skip('-');
    const std::size_t whole = skip_all(is_digit);
    if (whole < 1 || whole > 15) return false;
    if (!at('.')) return true;
    if (fraction == Fraction::refused || whole > 12) return false;
    skip('.');
    const std::size_t digits = skip_all(is_digit);
    return digits >= 1 && digits <= 3;
  }
  /// Section 4.2.7.
  bool skip_byte_sequence() {
    skip(':');
    skip_all(
        [](char c) { return is_letter(c) || is_digit(c) || c == '+' || c == '/' || c == '='; });
    return skip(':');
  }
  /// Section 4.2.10; the bytes behind `%` are not looked at as UTF-8.
  bool skip_display_string() {
    if (!skip('"')) return false;
    skip_all([](char c) { return c >= 0x20 && c < 0x7f && c != '"'; });
    return skip('"');
  }

  std::string_view rest_;
};

HttpKeyReading faulty(HttpKeyFault fault) { return {.key = {}, .fault = fault}; }

/// ':' and '%' within a part are escaped, so that the parts can be told apart.
void append_part(std::string& out, std::string_view part) {
  for (const char c : part) {
    if (c == ':') {
      out += "%3A";
    } else if (c == '%') {
      out += "%25";
    } else {
      out += c;
    }
  }
}

}  // namespace

HttpKeyReading read_http_key(std::string_view field_value, HttpKeySyntax syntax,
                             std::size_t longest) {
  ItemReader reader(trimmed(field_value));
  const bool is_bare = syntax == HttpKeySyntax::lenient && !reader.at('"');
  std::optional<std::string> key = is_bare ? reader.read_bare() : reader.read_string();
  if (!key || !reader.skip_parameters() || !reader.at_end()) return faulty(HttpKeyFault::malformed);
  if (key->find_first_not_of(' ') == std::string::npos) return faulty(HttpKeyFault::malformed);
  if (key->size() > longest) return faulty(HttpKeyFault::too_long);
  return {.key = *std::move(key), .fault = HttpKeyFault::none};
}

HttpKeyReading read_http_key(const std::vector<HttpField>& fields, HttpKeySyntax syntax,
                             std::size_t longest) {
  const HttpField* found = nullptr;
  for (const HttpField& field : fields) {
    if (!is_same_name(field.name, "Idempotency-Key")) continue;
    if (found != nullptr) return faulty(HttpKeyFault::repeated);
    found = &field;
  }
  if (found == nullptr) return faulty(HttpKeyFault::missing);
  return read_http_key(found->value, syntax, longest);
}

std::string quoted_http_key(std::string_view key) {
  std::string quoted = "\"";
  for (const char c : key) {
    if (c < 0x20 || c >= 0x7f) {
      throw Error(Errc::invalid_argument, "a key in a header field is printable ASCII");
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  quoted += '"';
  return quoted;
}

Key http_record_key(std::string_view type, std::string_view principal, std::string_view scope,
                    std::string_view client_key) {
  if (client_key.empty()) {
    throw Error(Errc::invalid_key, "the client's key is empty; refuse the request instead");
  }
  std::string joined;
  joined.reserve(client_key.size() + principal.size() + scope.size() + 2);
  append_part(joined, client_key);
  joined += ':';
  append_part(joined, principal);
  joined += ':';
  append_part(joined, scope);
  return Key::digested(type, joined);
}

}  // namespace v0
}  // namespace idempotency
