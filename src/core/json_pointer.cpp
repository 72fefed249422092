#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/key_resolver.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {
namespace {

std::string unescape(std::string_view token) {
  std::string name;
  for (std::size_t at = 0; at < token.size(); ++at) {
    if (token[at] != '~') {
      name += token[at];
      continue;
    }
    const char code = at + 1 < token.size() ? token[at + 1] : '\0';
    if (code != '0' && code != '1') {
      throw Error(Errc::invalid_argument, "In a JSON pointer '~' is written ~0 and '/' is ~1.",
                  std::string(token));
    }
    name += code == '0' ? '~' : '/';
    ++at;
  }
  return name;
}

/// The index that a reference token names; nothing for "-", signs and leading zeros.
std::optional<std::size_t> index_of(std::string_view token) {
  if (token.empty() || (token.size() > 1 && token.front() == '0')) return std::nullopt;
  std::size_t index = 0;
  const auto [end, failure] = std::from_chars(token.data(), token.data() + token.size(), index);
  if (failure != std::errc{} || end != token.data() + token.size()) return std::nullopt;
  return index;
}

/// Follows one path through the parser's events, so that nothing else of the text is kept.
class PathFollower : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PathFollower(const std::vector<std::string>& path) : path_(&path), steps_(path.size()) {}

  [[nodiscard]] std::optional<std::string> take_found() { return std::move(found_); }
  [[nodiscard]] bool unusable() const noexcept { return unusable_; }

  bool null() override {
    enter_value();
    return true;
  }
  bool boolean(bool truth) override { return scalar(truth ? "true" : "false"); }
  bool number_integer(number_integer_t number) override { return scalar(std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override { return scalar(std::to_string(number)); }
  bool number_float(number_float_t, const string_t&) override { return other_kind(); }
  bool string(string_t& text) override { return scalar(text); }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open(Kind::object); }
  bool start_array(std::size_t) override { return open(Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!innermost_is_on_path()) return true;
    Step& step = steps_[depth_ - 1];
    step.here = name == (*path_)[depth_ - 1];
    if (step.here && step.seen) unusable_ = true;
    step.seen |= step.here;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  enum class Kind { object, array };
  /// A container on the path, and the child of it that the path goes through.
  struct Step {
    Kind kind = Kind::object;
    std::size_t next_index = 0;
    bool here = false;  ///< the next value is that child
    bool seen = false;
  };

  [[nodiscard]] bool innermost_is_on_path() const noexcept {
    return depth_ > 0 && depth_ == on_path_ && depth_ <= path_->size();
  }

  /// Whether the value that begins now lies on the path.
  bool enter_value() {
    if (depth_ == 0) return true;
    if (!innermost_is_on_path()) return false;
    Step& step = steps_[depth_ - 1];
    if (step.kind == Kind::array) step.here = index_of((*path_)[depth_ - 1]) == step.next_index++;
    return step.here;
  }
  bool scalar(std::string text) {
    if (enter_value() && depth_ == path_->size()) found_ = std::move(text);
    return true;
  }
  bool other_kind() {
    if (enter_value() && depth_ == path_->size()) unusable_ = true;
    return true;
  }
  bool open(Kind kind) {
    if (enter_value()) {
      if (depth_ == path_->size()) {
        unusable_ = true;
      } else {
        on_path_ = depth_ + 1;
        steps_[depth_] = Step{kind};
      }
    }
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    on_path_ = std::min(on_path_, depth_);
    return true;
  }

  const std::vector<std::string>* path_;
  std::vector<Step> steps_;
  std::size_t depth_ = 0;    ///< open containers
  std::size_t on_path_ = 0;  ///< those of them that the path goes through
  std::optional<std::string> found_;
  bool unusable_ = false;
};

}  // namespace

std::vector<std::string> parse_json_pointer(std::string_view pointer) {
  std::vector<std::string> path;
  if (pointer.empty()) return path;
  if (pointer.front() != '/') {
    throw Error(Errc::invalid_argument, "A JSON pointer is empty or begins with '/'.",
                std::string(pointer));
  }
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string_view token = pointer.substr(0, pointer.find('/'));
    path.push_back(unescape(token));
    pointer.remove_prefix(token.size());
  }
  return path;
}

std::optional<std::string> find_in_json(const std::vector<std::string>& path,
                                        std::string_view json) {
  // The parser takes a NUL for the end of its input and would not see what follows.
  if (json.find('\0') != std::string_view::npos) return std::nullopt;
  PathFollower follower(path);
  if (!nlohmann::json::sax_parse(json, &follower)) return std::nullopt;
  if (follower.unusable()) {
    throw Error(
        Errc::invalid_key,
        "The key's place in the JSON body holds neither text nor an integer, or is named twice; "
        "refuse the request.");
  }
  return follower.take_found();
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
