#include "idempotency/fingerprint.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace idempotency {
inline namespace v0 {
namespace {

constexpr std::size_t max_depth = 256;
// Sets JSON apart from the inputs of `of` and `of_bytes` in practice.
constexpr std::string_view form_prefix = "J1";

[[noreturn]] void refuse(const char* message, std::string detail = {}) {
  throw Error(Errc::invalid_fingerprint, message, std::move(detail));
}

constexpr bool is_digit(char character) noexcept { return character >= '0' && character <= '9'; }

void append_word(std::string& out, std::uint64_t word) {
  for (unsigned shift = 0; shift < 64; shift += 8)
    out += static_cast<char>(word >> shift);
}

void write_word(std::string& out, std::size_t at, std::uint64_t word) {
  for (unsigned shift = 0; shift < 64; shift += 8)
    out[at++] = static_cast<char>(word >> shift);
}

/// A number as written in JSON, taken apart.
struct Decimal {
  bool negative = false;
  std::string digits;  ///< of the whole and the fractional part, leading zeros left out
  std::int64_t exponent = 0;
};

std::int64_t read_exponent(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  constexpr std::int64_t bound = 1'000'000'000'000'000'000;
  if (failure != std::errc{} || exponent > bound || exponent < -bound) {
    refuse("The JSON text holds a number whose exponent is beyond all use; refuse the request.");
  }
  return exponent;
}

/// `text` is a number that the parser has accepted. Whatever is not a sign, digit or exponent in it
/// is the decimal point: the parser writes it as the process's locale does.
Decimal read_decimal(std::string_view text) {
  Decimal number;
  bool fraction = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char character = text[at];
    if (character == '-') {
      number.negative = true;
    } else if (character == 'e' || character == 'E') {
      number.exponent += read_exponent(text.substr(at + 1));
      break;
    } else if (is_digit(character)) {
      if (fraction) --number.exponent;
      if (character != '0' || !number.digits.empty()) number.digits += character;
    } else {
      fraction = true;
    }
  }
  return number;
}

/// The one spelling of a number: sign, digits without zeros at either end, 'e', exponent.
std::string canonical_number(std::string_view text) {
  Decimal number = read_decimal(text);
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
    ++number.exponent;
  }
  if (number.digits.empty()) return "0";
  return (number.negative ? "-" : "") + number.digits + 'e' + std::to_string(number.exponent);
}

/// Receives the parser's events and writes the canonical form of the text: every value with its
/// kind and length in front, the members of an object in the order of their names' bytes.
class Canonicaliser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Canonicaliser(std::size_t text_size) { form_.reserve(2 * text_size); }

  [[nodiscard]] const std::string& form() const noexcept { return form_; }

  bool null() override { return simple('n'); }
  bool boolean(bool truth) override { return simple(truth ? 't' : 'f'); }
  bool number_integer(number_integer_t number) override { return integer(number); }
  bool number_unsigned(number_unsigned_t number) override { return integer(number); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool string(string_t& text) override {
    append_text('s', text);
    return after_value();
  }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open('o'); }
  bool start_array(std::size_t) override { return open('a'); }
  bool end_array() override { return close(); }
  bool end_object() override {
    sort_members();
    members_.resize(containers_.back().first_member);
    return close();
  }
  bool key(string_t& name) override {
    members_.push_back({form_.size(), 0, name.size()});
    append_text('k', name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    constexpr int number_overflow = 406;
    refuse(failure.id == number_overflow
               ? "The JSON text holds a number beyond the range of a double; refuse the request."
               : "The text is not valid JSON in UTF-8; refuse the request.",
           "at byte " + std::to_string(position) + ": " + failure.what());
  }

 private:
  struct Container {
    std::size_t count_at;      ///< where the number of children stands in the form
    std::size_t first_member;  ///< in `members_`
    std::uint64_t count = 0;
  };
  struct Member {
    std::size_t begin;  ///< of the name's head, in the form
    std::size_t end;    ///< of the value
    std::size_t name_size;
  };
  static constexpr std::size_t head_bytes = 1 + 8;  ///< kind and length

  void append_text(char kind, std::string_view text) {
    form_ += kind;
    append_word(form_, text.size());
    form_ += text;
  }
  bool simple(char kind) {
    form_ += kind;
    return after_value();
  }
  bool number(std::string_view text) {
    append_text('d', canonical_number(text));
    return after_value();
  }
  template <class Integer>
  bool integer(Integer value) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return number(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
  }
  bool open(char kind) {
    if (containers_.size() == max_depth) {
      refuse("The JSON text nests deeper than 256; refuse the request.");
    }
    form_ += kind;
    containers_.push_back({form_.size(), members_.size()});
    append_word(form_, 0);
    return true;
  }
  bool close() {
    write_word(form_, containers_.back().count_at, containers_.back().count);
    containers_.pop_back();
    return after_value();
  }
  bool after_value() {
    if (containers_.empty()) return true;
    ++containers_.back().count;
    if (members_.size() > containers_.back().first_member) members_.back().end = form_.size();
    return true;
  }

  [[nodiscard]] std::string_view name_of(const Member& member) const {
    return std::string_view(form_).substr(member.begin + head_bytes, member.name_size);
  }

  void sort_members() {
    const auto first =
        members_.begin() + static_cast<std::ptrdiff_t>(containers_.back().first_member);
    if (first == members_.end()) return;
    const std::size_t begin = first->begin;
    std::sort(first, members_.end(), [this](const Member& left, const Member& right) {
      return name_of(left) < name_of(right);
    });
    const auto twin =
        std::adjacent_find(first, members_.end(), [this](const Member& left, const Member& right) {
          return name_of(left) == name_of(right);
        });
    if (twin != members_.end()) {
      refuse("The JSON text names a member twice; refuse the request.",
             std::string(name_of(*twin)));
    }
    std::string sorted;
    sorted.reserve(form_.size() - begin);
    for (auto member = first; member != members_.end(); ++member) {
      sorted.append(form_, member->begin, member->end - member->begin);
    }
    form_.replace(begin, sorted.size(), sorted);
  }

  std::string form_{form_prefix};
  std::vector<Container> containers_;
  std::vector<Member> members_;  ///< of all open objects, outermost first
};

}  // namespace

Fingerprint Fingerprint::of_json(std::string_view text) {
  // The parser takes a NUL for the end of its input and would not see what follows.
  if (text.find('\0') != std::string_view::npos) {
    refuse("The text is not valid JSON in UTF-8; refuse the request.", "it holds a NUL byte");
  }
  Canonicaliser canonicaliser(text.size());
  if (!nlohmann::json::sax_parse(text, &canonicaliser)) {
    refuse("The text is not valid JSON in UTF-8; refuse the request.");
  }
  return Fingerprint(Part{1, detail::sha256(canonicaliser.form())});
}

}  // namespace v0
}  // namespace idempotency
