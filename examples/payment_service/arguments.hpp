#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace shop {

/// `--name value` pairs from the command line.
///
/// Errors: `std::invalid_argument`, with a sentence for the user, for a name that is not known, a
/// missing value and a value that is not a number where one is asked for.
class Arguments {
 public:
  Arguments(int count, char** values, std::initializer_list<std::string_view> known);

  [[nodiscard]] std::string text(const std::string& name) const;
  [[nodiscard]] std::string text_or(const std::string& name, const std::string& fallback) const;
  [[nodiscard]] int number(const std::string& name) const;
  [[nodiscard]] int number_or(const std::string& name, int fallback) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace shop
