#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "idempotency/error.hpp"
#include "idempotency/policy.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using std::chrono::milliseconds;

/// Walks over the text and counts lines, so that an error can name its place.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* line) noexcept : at_(at), line_(line) {}
  reference operator*() const noexcept { return *at_; }
  CountingIterator& operator++() noexcept {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) noexcept {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) noexcept {
    return !(a == b);
  }

 private:
  const char* at_;
  std::size_t* line_;
};

/// Errors: `Errc::invalid_argument`, also for a folder.
std::string text_of_file(const std::string& path) {
  std::string text;
  bool is_read = false;
  try {
    std::ifstream file(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    is_read = static_cast<bool>(file);
  } catch (const std::ios_base::failure&) {  // what libstdc++ says of a folder, asked for or not
    is_read = false;
  }
  if (!is_read) {
    throw Error(Errc::invalid_argument, "the policy file cannot be read; check its path and rights",
                path);
  }
  return text;
}

struct Unit {
  std::string_view name;
  milliseconds length;
};
constexpr std::array<Unit, 5> units{{{"ms", milliseconds{1}},
                                     {"s", milliseconds{1'000}},
                                     {"m", milliseconds{60'000}},
                                     {"h", milliseconds{3'600'000}},
                                     {"d", milliseconds{86'400'000}}}};

std::optional<milliseconds> parse_duration(std::string_view text) {
  milliseconds::rep number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    if (number > std::numeric_limits<milliseconds::rep>::max() / unit.length.count()) {
      return std::nullopt;
    }
    return number * unit.length;
  }
  return std::nullopt;
}

/// Reads the two levels of a policy file: business types, and the members of their policies.
class PolicyReader {
 public:
  explicit PolicyReader(const std::size_t& line) noexcept : line_(&line) {}

  [[nodiscard]] PolicyTable take() && { return std::move(table_); }

  bool start_object(std::size_t /*elements*/) {
    if (++depth_ > 2) refuse("a policy file has two levels: business types and their policies");
    if (depth_ == 2) {
      policy_ = built_in_.find(type_);  // no type is named "*": that finds the default
      members_.clear();
    }
    return true;
  }

  bool end_object() {
    if (depth_-- == 2) store();
    return true;
  }

  bool key(std::string& name) {
    if (depth_ == 1) {
      type_ = name;
      member_.clear();
      if (!types_.insert(name).second) refuse("a business type is named twice");
    } else {
      member_ = name;
      if (!members_.insert(name).second) refuse("a policy's member is named twice");
    }
    return true;
  }

  bool string(std::string& text) {
    in_policy();
    if (milliseconds* duration = duration_member()) {
      const std::optional<milliseconds> parsed = parse_duration(text);
      if (!parsed) {
        refuse(
            "a duration is a whole number, not too large, and a unit: ms, s, m, h or d (\"30s\")");
      }
      *duration = *parsed;
    } else if (member_ == "on_expired_lease") {
      policy_.on_expired_lease =
          choose(text, "take_over", RecordMode::take_over, "hold", RecordMode::hold);
    } else if (member_ == "on_store_failure") {
      policy_.on_store_failure = choose(text, "refuse", OnStoreFailure::refuse, "run_unprotected",
                                        OnStoreFailure::run_unprotected);
    } else {
      refuse_member(member_ == "max_result_bytes"
                        ? "max_result_bytes is a number of bytes, without a unit"
                        : "a policy's member is unknown");
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) {
    in_policy();
    if (duration_member() != nullptr) {
      refuse_member("a duration is text with a unit, such as \"500ms\", \"30s\" or \"2h\"");
    }
    if (is_choice()) refuse_member("the value is text");
    if (member_ != "max_result_bytes") refuse_member("a policy's member is unknown");
    policy_.max_result_bytes = number;
    return true;
  }

  bool null() { return wrong_kind(); }
  bool boolean(bool /*value*/) { return wrong_kind(); }
  bool number_integer(std::int64_t /*number*/) { return wrong_kind(); }
  bool number_float(double /*number*/, const std::string& /*text*/) { return wrong_kind(); }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return wrong_kind(); }
  bool start_array(std::size_t /*elements*/) { return wrong_kind(); }
  bool end_array() { return wrong_kind(); }

  template <class Exception>
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Exception& /*exception*/) {
    refuse("the policy file is not JSON");
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    std::string path;
    if (!type_.empty()) path += "/" + type_;
    if (!member_.empty()) path += "/" + member_;
    throw Error(Errc::invalid_policy, why,
                "line " + std::to_string(*line_ + 1) + (path.empty() ? "" : ", " + path));
  }
  [[noreturn]] void refuse_member(const std::string& why) const {
    refuse(why +
           "; members are lease, success_retention, failure_retention, wait, on_expired_lease, "
           "on_store_failure, max_result_bytes and max_total_hold");
  }
  bool wrong_kind() {
    in_policy();
    if (duration_member() != nullptr) {
      refuse_member("a duration is text with a unit, such as \"500ms\", \"30s\" or \"2h\"");
    }
    if (is_choice()) refuse_member("the value is text");
    refuse_member(member_ == "max_result_bytes" ? "max_result_bytes is a whole number, 0 or more"
                                                : "a policy's member is unknown");
  }
  [[nodiscard]] bool is_choice() const noexcept {
    return member_ == "on_expired_lease" || member_ == "on_store_failure";
  }
  void in_policy() const {
    if (depth_ != 2) refuse("a policy is an object");
  }

  template <class Choice>
  Choice choose(const std::string& text, std::string_view first, Choice first_choice,
                std::string_view second, Choice second_choice) const {
    if (text == first) return first_choice;
    if (text == second) return second_choice;
    refuse("the value must be \"" + std::string(first) + "\" or \"" + std::string(second) + "\"");
  }

  milliseconds* duration_member() {
    if (member_ == "lease") return &policy_.lease;
    if (member_ == "success_retention") return &policy_.success_retention;
    if (member_ == "failure_retention") return &policy_.failure_retention;
    if (member_ == "wait") return &policy_.wait;
    if (member_ == "max_total_hold") return &policy_.max_total_hold;
    return nullptr;
  }

  void store() {
    try {
      if (type_ == "*") {
        table_.replace_default(policy_);
      } else {
        table_.replace(type_, policy_);
      }
    } catch (const Error& error) {
      member_.clear();
      refuse(error.what());
    }
  }

  const std::size_t* line_;
  const PolicyTable built_in_;
  PolicyTable table_;
  Policy policy_;
  std::set<std::string> types_;
  std::set<std::string> members_;
  std::string type_;
  std::string member_;
  int depth_ = 0;
};

}  // namespace

PolicyTable PolicyTable::from_json(std::string_view text) {
  std::size_t line = 0;
  PolicyReader reader(line);
  const CountingIterator begin(text.data(), &line);
  const CountingIterator end(text.data() + text.size(), &line);
  if (!nlohmann::json::sax_parse(begin, end, &reader)) {
    throw Error(Errc::invalid_policy, "the policy file is not JSON");
  }
  return std::move(reader).take();
}

PolicyTable PolicyTable::from_json_file(const std::string& path) {
  const std::string text = text_of_file(path);
  try {
    return from_json(text);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), path + ": " + error.detail());
  }
}

}  // namespace v0
}  // namespace idempotency
