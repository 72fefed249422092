#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

/// The steps that are more than one command.
enum class ScriptName : std::uint8_t {
  begin,    ///< meets whatever record there is
  write,    ///< the owner's writes
  resolve,  ///< an operator's settlement
  issue,    ///< makes a key that may be begun
  find,     ///< the value, and when it ends
};
inline constexpr std::size_t script_count = 5;

/// What `begin` answers, besides the values of `Answer`, when the fingerprints differ.
inline constexpr std::int64_t mismatch_answer = 7;

/// Which commands the server has.
enum class Dialect : std::uint8_t {
  since_7_0,   ///< PEXPIRETIME, and SET with NX and GET together
  before_7_0,  ///< neither
};

/// The scripts, in which the table of `transition()` stands as data: they apply it and judge nothing of their own.
[[nodiscard]] const RedisScript& script(ScriptName name, Dialect dialect);

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
