#include "arguments.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace shop {

Arguments::Arguments(int count, char** values, std::initializer_list<std::string_view> known) {
  for (int at = 1; at < count; at += 2) {
    const std::string_view option = values[at];
    if (!option.starts_with("--") ||
        std::find(known.begin(), known.end(), option.substr(2)) == known.end()) {
      throw std::invalid_argument("unknown option " + std::string(option));
    }
    if (at + 1 == count) throw std::invalid_argument("no value after " + std::string(option));
    values_.insert_or_assign(std::string(option.substr(2)), values[at + 1]);
  }
}

std::string Arguments::text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw std::invalid_argument("missing option --" + name);
  return found->second;
}

std::string Arguments::text_or(const std::string& name, const std::string& fallback) const {
  return values_.contains(name) ? text(name) : fallback;
}

int Arguments::number(const std::string& name) const {
  const std::string value = text(name);
  int number = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (problem != std::errc{} || end != value.data() + value.size()) {
    throw std::invalid_argument("--" + name + " needs a number, not " + value);
  }
  return number;
}

int Arguments::number_or(const std::string& name, int fallback) const {
  return values_.contains(name) ? number(name) : fallback;
}

}  // namespace shop
