#include "mysql/mysql_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

constexpr std::string_view white_space = " \t\r\n\f\v";

struct Token {
  enum class Kind : std::uint8_t { end, word, quoted, sign };
  Kind kind = Kind::end;
  std::string text = {};  ///< in capitals

  [[nodiscard]] bool is_word(std::string_view wanted) const noexcept {
    return kind == Kind::word && text == wanted;
  }
  [[nodiscard]] bool is_sign(char wanted) const noexcept {
    return kind == Kind::sign && text.front() == wanted;
  }
};

bool is_word_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || static_cast<unsigned char>(c) >= 0x80;
}

char capital(char c) noexcept {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

/// The words and signs of a statement.
class Tokens {
 public:
  explicit Tokens(std::string_view sql) noexcept : rest_(sql) {}

  Token next() {
    skip_space();
    if (rest_.empty()) return {};
    const char first = rest_.front();
    if (first == '\'' || first == '"' || first == '`') return quoted(first);
    Token token{.kind = is_word_character(first) ? Token::Kind::word : Token::Kind::sign};
    do {
      token.text += capital(rest_.front());
      rest_.remove_prefix(1);
    } while (token.kind == Token::Kind::word && !rest_.empty() && is_word_character(rest_.front()));
    return token;
  }
  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }
  /// Whether the statement begins with a comment that servers execute, each by its own rules.
  [[nodiscard]] bool has_executable_comment_in_front() noexcept {
    while (!rest_.empty() && !rest_.starts_with("/*!") && !rest_.starts_with("/*M!")) {
      const std::size_t skip = space_at_front();
      if (skip == 0) return false;
      rest_.remove_prefix(std::min(skip, rest_.size()));
    }
    return !rest_.empty();
  }

 private:
  /// Behind white space and comments. What stands in /*! ... */ is executed and is no comment.
  void skip_space() noexcept {
    while (!rest_.empty()) {
      const std::size_t skip = space_at_front();
      if (skip == 0) return;
      rest_.remove_prefix(std::min(skip, rest_.size()));
    }
  }
  [[nodiscard]] std::size_t space_at_front() const noexcept {
    if (white_space.find(rest_.front()) != std::string_view::npos) return 1;
    const bool dashes =  // "1--1" is a difference
        rest_.starts_with("--") &&
        (rest_.size() == 2 || static_cast<unsigned char>(rest_[2]) <= ' ');
    if (dashes || rest_.front() == '#') return std::min(rest_.find('\n'), rest_.size());
    if (rest_.starts_with("/*!") || rest_.starts_with("/*M!")) {
      return std::min(rest_.find_first_not_of("0123456789", rest_.find('!') + 1), rest_.size());
    }
    if (rest_.starts_with("*/")) return 2;
    if (!rest_.starts_with("/*")) return 0;
    const std::size_t end = rest_.find("*/", 2);
    return end == std::string_view::npos ? rest_.size() : end + 2;
  }
  Token quoted(char quote) {
    Token token{.kind = Token::Kind::quoted};
    rest_.remove_prefix(1);
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\' && quote != '`' && !rest_.empty()) {
        rest_.remove_prefix(1);
      } else if (c != quote) {
        token.text += capital(c);
      } else if (rest_.starts_with(quote)) {
        rest_.remove_prefix(1);
      } else {
        break;
      }
    }
    return token;
  }

  std::string_view rest_;
};

/// Behind SET STATEMENT: to what is executed.
void skip_settings(Tokens& tokens) {
  int depth = 0;
  for (Token token = tokens.next(); token.kind != Token::Kind::end; token = tokens.next()) {
    if (token.is_sign('(')) ++depth;
    if (token.is_sign(')')) --depth;
    if (depth == 0 && token.is_word("FOR")) return;
  }
}

/// Every assignment counts, in whichever of its forms.
bool set_ends_transaction(Tokens tokens) {
  Tokens ahead = tokens;
  if (ahead.next().is_word("STATEMENT")) {
    skip_settings(ahead);
    return ends_transaction(ahead.rest());
  }
  int depth = 0;
  int at_signs = 0;  // one: a variable of the application's own
  bool is_name = true;
  std::string name;
  for (Token token = tokens.next(); token.kind != Token::Kind::end; token = tokens.next()) {
    if (token.is_sign('(')) ++depth;
    if (token.is_sign(')')) --depth;
    if (depth == 0 && token.is_sign(';')) return ends_transaction(tokens.rest());
    if (depth == 0 && token.is_sign(',')) {
      is_name = true;
      at_signs = 0;
    } else if (is_name && token.is_sign('@')) {
      ++at_signs;
    } else if (is_name && token.kind != Token::Kind::sign) {
      const bool statement =
          token.is_word("TRANSACTION") || token.is_word("PASSWORD") || token.is_word("DEFAULT");
      if (statement && at_signs == 0) return true;
      name = std::move(token.text);
    } else if (is_name && !token.is_sign('.')) {
      const bool is_refused =
          name == "AUTOCOMMIT" || name == "COMPLETION_TYPE" || name == "TIMESTAMP";
      if (at_signs != 1 && is_refused) return true;
      is_name = false;
    }
  }
  return false;
}

}  // namespace

bool ends_transaction(std::string_view sql) {
  if (Tokens(sql).has_executable_comment_in_front()) return true;
  Tokens tokens(sql);
  Token first = tokens.next();
  while (first.is_sign('(') || first.is_sign(';'))
    first = tokens.next();
  if (first.kind != Token::Kind::word) return false;
  // The last line begins compound statements, in which any other may stand.
  constexpr std::array<std::string_view, 32> always{
      "BEGIN",  "START", "COMMIT",   "ROLLBACK", "SAVEPOINT", "RELEASE", "XA",       "LOCK",
      "UNLOCK", "ALTER", "TRUNCATE", "RENAME",   "GRANT",     "REVOKE",  "OPTIMIZE", "REPAIR",
      "CHECK",  "FLUSH", "RESET",    "INSTALL",  "UNINSTALL", "CHANGE",  "STOP",     "CACHE",
      "PURGE",  "IF",    "CASE",     "FOR",      "WHILE",     "REPEAT",  "LOOP",     "EXECUTE"};
  if (std::find(always.begin(), always.end(), first.text) != always.end()) return true;
  if (first.text == "SET") return set_ends_transaction(tokens);
  Token second = tokens.next();
  if (second.is_sign(':')) return true;  // the label of a loop or a block
  if (first.text == "DROP") return !second.is_word("TEMPORARY");
  if (first.text == "CREATE") {
    if (second.is_word("OR")) {
      static_cast<void>(tokens.next());  // REPLACE
      second = tokens.next();
    }
    return !second.is_word("TEMPORARY");
  }
  if (first.text == "ANALYZE") {  // of a SELECT or an UPDATE it only tells the plan
    if (second.is_word("LOCAL") || second.is_word("NO_WRITE_TO_BINLOG")) second = tokens.next();
    return second.is_word("TABLE") || second.is_word("TABLES");
  }
  return first.text == "LOAD" && second.is_word("INDEX");
}

bool cannot_end_transaction(std::string_view sql) {
  Tokens tokens(sql);
  Token first = tokens.next();
  while (first.is_sign('('))
    first = tokens.next();
  constexpr std::array<std::string_view, 8> plain{"SELECT", "INSERT",  "UPDATE", "DELETE",
                                                  "WITH",   "REPLACE", "VALUES", "SET"};
  return first.kind == Token::Kind::word &&
         std::find(plain.begin(), plain.end(), first.text) != plain.end();
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
