#pragma once

#include <string>
#include <string_view>

#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// The scripts of `RedisLocks`. A lock's value is 33 bytes: '1', the owner (16), the fence and the end of its lease in microseconds
/// since 1970 (8 each, the highest first; an end of 0: released).
struct RedisLockScripts {
  RedisScript acquire;
  RedisScript renew;
  RedisScript release;
  RedisScript force_release;
  RedisScript look;

  [[nodiscard]] static const RedisLockScripts& all() {
    static const RedisLockScripts scripts;
    return scripts;
  }

 private:
  /// What the others begin with: the value, and a refusal of what is none. Numbers are exact up to 2^53 in Lua.
  static constexpr std::string_view head = R"lua(
local call, key = redis.call, KEYS[1]
local v = call('GET', key)
local mark, owner, fence, ends
if v and #v == 33 then mark, owner, fence, ends = struct.unpack('>Bc16I8I8', v) end
if v and (mark ~= 49 or fence >= 9007199254740991) then
  return redis.error_reply('CORRUPT what stands under the key is no lock')
end
)lua";
  static constexpr std::string_view clock = R"lua(
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
)lua";

  /// ARGV: owner, lease, how long the value is kept. A fence, or how much of the other's lease remains, as a negative number.
  static constexpr std::string_view acquire_body = R"lua(
if owner == ARGV[1] then
  if ends == 0 then return -1 end
elseif v and ends > now then
  return -math.ceil((ends - now) / 1000)
elseif v and fence >= now then
  fence = fence + 1
else
  fence = now
end
call('SET', key, struct.pack('>Bc16I8I8', 49, ARGV[1], fence, now + ARGV[2] * 1000), 'PX', ARGV[3])
return fence
)lua";

  /// ARGV: owner, fence, lease, how long the value is kept.
  static constexpr std::string_view renew_body = R"lua(
if owner ~= ARGV[1] or fence ~= tonumber(ARGV[2]) or ends <= now then return 0 end
call('SET', key, struct.pack('>Bc16I8I8', 49, owner, fence, now + ARGV[3] * 1000), 'PX', ARGV[4])
return 1
)lua";

  /// ARGV: owner. Only the end is written; the value expires as it would have. Nothing else of the value is needed.
  static constexpr std::string_view release_body = R"lua(
local call, key = redis.call, KEYS[1]
local v = call('GET', key)
if v and (#v ~= 33 or v:byte() ~= 49) then
  return redis.error_reply('CORRUPT what stands under the key is no lock')
end
if not v or v:sub(2, 17) ~= ARGV[1] then return 0 end
call('SETRANGE', key, 25, '\0\0\0\0\0\0\0\0')
return 1
)lua";

  /// ARGV: how long the value is kept.
  static constexpr std::string_view force_release_body = R"lua(
fence = math.max((fence or 0) + 1, now)
call('SET', key, struct.pack('>Bc16I8I8', 49, ('\0'):rep(16), fence, 0), 'PX', ARGV[1])
return fence
)lua";

  static constexpr std::string_view look_body = R"lua(
if not v then return false end
return {fence, math.max(0, math.ceil((ends - now) / 1000))}
)lua";

  static RedisScript judging(std::string_view body) {
    return RedisScript(std::string(head) + std::string(clock) + std::string(body));
  }

  RedisLockScripts()
      : acquire(judging(acquire_body)),
        renew(judging(renew_body)),
        release(std::string(release_body)),
        force_release(judging(force_release_body)),
        look(judging(look_body)) {}
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
