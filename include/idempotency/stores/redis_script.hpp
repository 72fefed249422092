#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/key.hpp"

namespace idempotency {
inline namespace v0 {

/// A Lua script and the name by which a Redis server knows it once it has seen it. Make each once: a digest is computed.
///
/// Errors: `Errc::store_refused` when libcrypto offers no SHA-1, which is a name here and no secret.
/// Thread safety: constant after construction.
class RedisScript {
 public:
  explicit RedisScript(std::string body);

  [[nodiscard]] const std::string& body() const noexcept { return body_; }
  [[nodiscard]] const std::string& sha1() const noexcept { return sha1_; }

 private:
  std::string body_;
  std::string sha1_;
};

/// What a script answered, in the forms that Lua's values take on the way: nothing (`nil`, `false`), a whole number, bytes,
/// or a list of them.
///
/// Errors: `Errc::store_corrupt` for another form than the one that is asked for.
/// Thread safety: a value; distinct copies may be used concurrently.
class RedisReply {
 public:
  using List = std::vector<RedisReply>;

  RedisReply() = default;
  explicit RedisReply(std::int64_t number) : value_(number) {}
  explicit RedisReply(std::string bytes) : value_(std::move(bytes)) {}
  explicit RedisReply(List list) : value_(std::move(list)) {}

  [[nodiscard]] bool is_nil() const noexcept {
    return std::holds_alternative<std::monostate>(value_);
  }
  [[nodiscard]] std::int64_t integer() const { return as<std::int64_t>(); }
  [[nodiscard]] const std::string& bytes() const { return as<std::string>(); }
  /// How many a list holds.
  [[nodiscard]] std::size_t size() const { return as<List>().size(); }
  [[nodiscard]] const RedisReply& at(std::size_t index) const {
    if (index >= size()) throw_other_form();
    return as<List>()[index];
  }

  friend bool operator==(const RedisReply&, const RedisReply&) = default;

 private:
  template <class T>
  [[nodiscard]] const T& as() const {
    const T* value = std::get_if<T>(&value_);
    if (value == nullptr) throw_other_form();
    return *value;
  }
  [[noreturn]] static void throw_other_form() {
    throw Error(Errc::store_corrupt,
                "redis store: a script answered in another form than its caller reads");
  }

  std::variant<std::monostate, std::int64_t, std::string, List> value_;
};

/// Whether a script whose answer is lost may have changed anything.
enum class RedisScriptEffect : std::uint8_t { reads, writes };

/// How a script is run.
struct RedisScriptOptions {
  RedisScriptEffect effect = RedisScriptEffect::writes;
  /// How many replicas are waited for to have what the script wrote (WAIT). Other than 0, the answer is a list of two: the
  /// script's own, and how many had it in time; too few is no error.
  std::uint32_t replicas = 0;
  /// How long they are waited for: at least 1 ms, and shorter than the store's `command_timeout`.
  std::chrono::milliseconds replica_wait{100};
};

/// What `run_script` takes for keys and for arguments.
using RedisWords = std::vector<std::string_view>;

/// A store that runs scripts on its Redis server.
///
/// - `run_script(script, keys, arguments, options)`: with EVALSHA, and once more with the script itself where the server does not
///   have it. Errors as those of the store's other calls; a script that returns an error whose first word is
///   CORRUPT is `Errc::store_corrupt`. Like every call of the store it may be made twice when a connection had been closed:
///   write scripts so that a repetition answers as the first time.
/// - `name_for(key, part)`: a name beside the record of `key`, in its slot and never that of a record.
template <class S>
concept ScriptStore = requires(S& store, const S& seen, const RedisScript& script,
                               const RedisWords& words, const RedisScriptOptions& options,
                               const Key& key, std::string_view part) {
  { store.run_script(script, words, words, options) } -> std::same_as<RedisReply>;
  { seen.name_for(key, part) } -> std::same_as<std::string>;
};

}  // namespace v0
}  // namespace idempotency
