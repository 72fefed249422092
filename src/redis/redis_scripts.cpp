#include "redis/redis_scripts.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/transition.hpp"
#include "redis/redis_record.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

constexpr int phases = 7;
constexpr int events = 13;
/// The rows are text: two characters each, from '#' on, which leaves out '"' and ends before '\'.
constexpr char first_character = '#';

static_assert(static_cast<int>(Phase::issued) == phases - 1);
static_assert(static_cast<int>(Event::issue) == events - 1);
static_assert(static_cast<int>(Answer::lost) == 6 && static_cast<int>(Answer::stored) == 5);
static_assert(static_cast<int>(Event::begin) == 0 && static_cast<int>(Event::begin_issued) == 1);
static_assert(static_cast<int>(Event::mark_effect) == 3);

/// Every row of the table, in the order in which `row` of the scripts counts.
std::string transition_table() {
  std::string table;
  for (int event = 0; event < events; ++event) {
    for (int phase = 0; phase < phases; ++phase) {
      for (const Standing standing : {Standing::other, Standing::current}) {
        for (const LeaseStatus lease : {LeaseStatus::running, LeaseStatus::run_out}) {
          for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
            const Transition step = transition(static_cast<Phase>(phase), static_cast<Event>(event),
                                               standing, lease, mode);
            const int outcome = static_cast<int>(step.to) * 8 + static_cast<int>(step.answer);
            const int steps = static_cast<int>(step.fence) * 6 + static_cast<int>(step.owner) * 3 +
                              static_cast<int>(step.lease);
            table += static_cast<char>(first_character + outcome);
            table += static_cast<char>(first_character + steps);
          }
        }
      }
    }
  }
  return table;
}

/// `value` reads by a command that counts as a write and changes nothing, so that a replica, whose copy may be old, refuses
/// it: whoever looks for a record may run the operation when there is none.
constexpr std::string_view commands_since_7_0 = R"lua(
local function expiry() return redis.call('PEXPIRETIME', key) end
local function save_until(s, ends)
  redis.call('SET', key, s, 'PXAT', ends)
end
local function value() return redis.call('GETEX', key) end
)lua";

/// Two looks at the clock in the same millisecond make an end exact, so that it is the same each time. Record and end are one
/// command, so that there is none without the other; should the clock pass a millisecond each time, the end is that much later.
constexpr std::string_view commands_before_7_0 = R"lua(
local function expiry()
  while true do
    local before = now()
    local left = redis.call('PTTL', key)
    if left < 0 then return -1 end
    if now() == before then return before + left end
  end
end
local function save_until(s, ends)
  for _ = 1, 8 do
    local before = now()
    redis.call('SET', key, s, 'PX', math.max(1, ends - before))
    if now() == before then return end
  end
end
local function value()
  local e = redis.pcall('ZREMRANGEBYSCORE', key, 1, 0)
  if type(e) == 'table' and e.err and not e.err:find('WRONGTYPE', 1, true) then
    redis.call('ZREMRANGEBYSCORE', key, 1, 0)
  end
  return redis.call('GET', key)
end
)lua";

constexpr std::string_view clock = R"lua(
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
)lua";

constexpr std::string_view layout = R"lua(
local function cut(s, at, size)
  local piece = s:sub(at, at + size - 1)
  if #piece ~= size then error('short') end
  return piece, at + size
end
local function number(s, at)
  local n, scale = 0, 1
  while true do
    local b = s:byte(at)
    at = at + 1
    if b < 128 then return n + b * scale, at end
    n, scale = n + (b - 128) * scale, scale * 128
  end
end
local function varint(n)
  local s = ''
  while n >= 128 do
    s = s .. string.char(n % 128 + 128)
    n = math.floor(n / 128)
  end
  return s .. string.char(n)
end
local function text(s, at)
  local size
  size, at = number(s, at)
  return cut(s, at, size)
end
local U = {1, 1000, 60000, 600000, 3600000, 86400000, 2592000000, 31536000000}
local function retention(s, at)
  local n
  n, at = number(s, at)
  return math.floor(n / 8) * U[n % 8 + 1], at
end
local function retention_code(n)
  local i = 8
  while n % U[i] ~= 0 do i = i - 1 end
  return varint(n / U[i] * 8 + i - 1)
end
local function end_mark(ends, span)
  local step = math.max(64, math.ceil(span / 128))
  return string.char(math.floor(ends / step) % 256)
end
local function bit(n, value) return math.floor(n / value) % 2 == 1 end
local function decode(s)
  local marks = s:byte(1)
  local r = {state = marks % 8, hold = math.floor(marks / 8) % 2, marked = math.floor(marks / 16) % 2}
  if math.floor(marks / 64) ~= 1 or r.state < 1 or r.state > 5 then error('layout') end
  local at = 2
  local parts = r.state == 2 and 16 or 0
  if bit(marks, 32) then parts, at = s:byte(2), 3 end
  if parts >= 128 then error('parts') end
  r.permanent = bit(parts, 64) and 1 or 0
  r.fence, r.attempt = 1, 1
  if bit(parts, 32) then
    r.fence, at = number(s, at)
    r.attempt, at = number(s, at)
  end
  r.owner, at = cut(s, at, r.state == 2 and 4 or 16)
  if r.state == 1 then r.lease, at = number(s, at) end
  local timed = bit(parts, 1)
  if (timed and r.state == 2) or (not timed and r.state > 2) then error('times') end
  if timed then
    local a, b, c, d, e, f = s:byte(at, at + 5)
    r.created = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
    local later
    later, at = number(s, at + 6)
    r.updated = r.created + later
  end
  if r.state == 2 or r.state == 3 or r.state == 5 then r.retention, at = retention(s, at) end
  if r.state == 2 then
    r.took, at = number(s, at)
    at = at + 1
  end
  if bit(parts, 2) then r.fingerprint, at = cut(s, at, 33) end
  if bit(parts, 4) then r.trace, at = text(s, at) end
  if bit(parts, 8) then r.reason, at = text(s, at) end
  if bit(parts, 16) then r.result = s:sub(at) end
  return r
end
local function encode(r)
  local marks = 64 + r.state + r.hold * 8 + r.marked * 16
  local parts = r.permanent * 64
  local counts, owner, lease, times, kept, trace, reason = '', r.owner, '', '', '', '', ''
  if r.fence ~= 1 or r.attempt ~= 1 then
    parts = parts + 32
    counts = varint(r.fence) .. varint(r.attempt)
  end
  if r.state == 1 then lease = varint(r.lease) end
  local took = math.max(0, r.updated - r.created)
  if r.state == 2 then
    owner = owner:sub(1, 4)
    kept = retention_code(r.retention) .. varint(took) ..
           end_mark(r.updated + r.retention, r.retention)
  else
    local c = r.created
    parts = parts + 1
    times = string.char(math.floor(c / 1099511627776) % 256, math.floor(c / 4294967296) % 256,
                        math.floor(c / 16777216) % 256, math.floor(c / 65536) % 256,
                        math.floor(c / 256) % 256, c % 256) .. varint(took)
    if r.state == 3 or r.state == 5 then kept = retention_code(r.retention) end
  end
  if r.fingerprint then parts = parts + 2 end
  if r.trace then parts = parts + 4; trace = varint(#r.trace) .. r.trace end
  if r.reason then parts = parts + 8; reason = varint(#r.reason) .. r.reason end
  if r.result then parts = parts + 16 end
  local front = parts == (r.state == 2 and 16 or 0) and string.char(marks) or
                string.char(marks + 32, parts)
  return front .. counts .. owner .. lease .. times .. kept .. (r.fingerprint or '') .. trace ..
         reason .. (r.result or '')
end
)lua";

/// The record as it is, `r`, its `phase`, and `t`, the server's clock.
constexpr std::string_view judging = R"lua(
local t = now()
local r, phase, ends, run_out, deadline = nil, 0, -1, 0, ''
if v then
  local ok
  ok, r = pcall(decode, v)
  if not ok then return redis.error_reply('CORRUPT a stored record cannot be read') end
  phase = ({1, 2, 3 + r.permanent, 5, 6})[r.state]
  ends = expiry()
  if r.state == 2 then
    r.updated = ends >= 0 and ends - r.retention or r.took
    r.created = r.updated - r.took
  elseif not r.created then
    r.created = ends >= 0 and ends - L or 0
    r.updated = r.created
  end
  if r.state == 1 and r.lease > 0 and ends >= 0 then
    deadline = ends - L + r.lease
    if deadline <= t then run_out = 1 end
  end
end
local function owned_by(owner)
  if r.state == 2 then return r.owner == owner:sub(1, 4) end
  return r.owner == owner
end
local function row(event, current)
  local hold = (r.hold == 1 or r.marked == 1) and 1 or 0
  local at = (((event * 7 + phase) * 2 + (current and 1 or 0)) * 2 + run_out) * 2 + hold
  local outcome, steps = T:byte(at * 2 + 1, at * 2 + 2)
  outcome, steps = outcome - 35, steps - 35
  return math.floor(outcome / 8), outcome % 8, math.floor(steps / 6), math.floor(steps / 3) % 2,
         steps % 3
end
local function move(to, next_fence, owner)
  if next_fence == 2 then r.fence = r.fence + 1 end
  if owner then r.owner = owner end
  if to ~= phase or owner then r.updated = t end
  r.state = ({1, 2, 3, 3, 4, 5})[to]
  r.permanent = to == 4 and 1 or 0
end
local function save(...)
  local s = encode(r)
  redis.call('SET', key, s, ...)
  return s
end
local function finish(span)
  r.retention = span
  save_until(encode(r), r.updated + span)
end
)lua";

/// Nothing that could be denied follows a write.
/// ARGV: first value, owner, lease, hold (0 or 1), fingerprint, earlier fingerprint, event.
constexpr std::string_view begin_body = R"lua(
local function begin_life()
  redis.call('SET', key, ARGV[1], 'PX', L_text)
  return {0, ARGV[1], t + L, t}
end
local event = tonumber(ARGV[7])
if not v then
  if event == 1 then return {6, '', -1, t} end
  return begin_life()
end
if r.fingerprint and ARGV[5] ~= '' and r.fingerprint ~= ARGV[5] and r.fingerprint ~= ARGV[6] then
  return {7, v, ends, t}
end
local to, answer, fence, owner, lease = row(event, owned_by(ARGV[2]))
if fence == 1 then return begin_life() end
if to == phase and fence == 0 and owner == 0 and lease == 0 then return {answer, v, ends, t} end
if owner == 1 then
  r.attempt = r.attempt + 1
  r.hold = tonumber(ARGV[4])
  r.marked = 0
  if not r.fingerprint and ARGV[5] ~= '' then r.fingerprint = ARGV[5] end
  r.reason, r.result = nil, nil
end
move(to, fence, owner == 1 and ARGV[2] or nil)
if lease == 1 then r.lease = tonumber(ARGV[3]) end
return {answer, save('PX', L_text), t + L, t}
)lua";

/// Whatever the lease and the mode, its owner completes a running record.
constexpr bool completion_is_unconditional() {
  for (const LeaseStatus lease : {LeaseStatus::running, LeaseStatus::run_out}) {
    for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
      const Transition step =
          transition(Phase::processing, Event::complete, Standing::current, lease, mode);
      if (step.to != Phase::success || step.answer != Answer::stored ||
          step.fence != FenceStep::keep || step.owner != OwnerStep::keep) {
        return false;
      }
    }
  }
  return true;
}
static_assert(completion_is_unconditional(), "first_completion_since_7_0 goes without the table");

/// The usual end of a first run, a completion of what no script has touched yet: a third of the work of the general way,
/// which comes after it and for which it leaves everything unusual. The same ARGV as `write_body`.
constexpr std::string_view first_completion_since_7_0 = R"lua(
if v and ARGV[8] then
  local byte, sub, char = string.byte, string.sub, string.char
  local marks, front, rest = byte(v), nil, ''
  if marks == 65 or marks == 73 then
    if sub(v, 2, 17) == ARGV[2] and #v > 17 and byte(v, -1) < 128 then
      front = ARGV[6] == '1' and char(marks + 1) or char(marks + 33, 0)
    end
  elseif marks == 97 or marks == 105 then
    if byte(v, 2) == 2 and sub(v, 3, 18) == ARGV[2] and #v > 51 and byte(v, -34) < 128 then
      front, rest = char(marks + 1, ARGV[6] == '1' and 18 or 2), sub(v, -33)
    end
  end
  local ends = front and redis.call('PEXPIRETIME', key) or -1
  if ends >= 0 then
    local time, code = redis.call('TIME'), ''
    local t = time[1] * 1000 + math.floor(time[2] / 1000)
    local took, until_then = math.max(0, t - ends + L), t + ARGV[4]
    while took >= 128 do
      code = code .. char(took % 128 + 128)
      took = math.floor(took / 128)
    end
    redis.call('SET', key, front .. ARGV[8] .. code ..
               char(took, math.floor(until_then / ARGV[9]) % 256) .. rest .. ARGV[7], 'PXAT', until_then)
    return {5, t}
  end
end
)lua";

/// ARGV: event, owner, fence, lease or retention, reason, has a result (0 or 1), result. Of a completion at the first fence
/// also: how its value goes on behind the marks, and the step of its end mark.
constexpr std::string_view write_body = R"lua(
if not v then return {6, t} end
local event = tonumber(ARGV[1])
local to, answer, fence, owner, lease =
  row(event, owned_by(ARGV[2]) and r.fence == tonumber(ARGV[3]))
if answer ~= 5 then return {answer, t} end
if event == 3 then
  if r.marked == 0 then
    r.marked = 1
    save('KEEPTTL')
  end
  return {answer, t}
end
if to == phase and fence == 0 and owner == 0 and lease == 0 then return {answer, t} end
move(to, fence, nil)
if r.state == 1 then
  r.lease = tonumber(ARGV[4])
elseif r.state == 2 or r.state == 3 then
  r.reason = ARGV[5] ~= '' and ARGV[5] or nil
  r.result = ARGV[6] == '1' and ARGV[7] or nil
  finish(tonumber(ARGV[4]))
  return {answer, t}
end
save('PX', L_text)
return {answer, t}
)lua";

/// ARGV: event, what was seen (owner, fence, created, state, hold, marked, deadline or ''), the resolver, its fence,
/// retention, reason, has a result (0 or 1), result.
constexpr std::string_view resolve_body = R"lua(
if not v then return {6, t} end
local event = tonumber(ARGV[1])
local resolver = ARGV[9]
if owned_by(resolver) and r.fence == tonumber(ARGV[10]) and phase ~= 1 and phase ~= 5 then
  return {5, t}
end
local as_seen = owned_by(ARGV[2]) and r.fence == tonumber(ARGV[3]) and
  r.created == tonumber(ARGV[4]) and r.state == tonumber(ARGV[5]) and r.hold == tonumber(ARGV[6]) and
  r.marked == tonumber(ARGV[7]) and
  (r.state ~= 1 or tonumber(deadline) == tonumber(ARGV[8]))
local to, answer, fence, owner = row(event, as_seen)
if answer ~= 5 then return {answer, t} end
move(to, fence, owner == 1 and resolver or nil)
r.reason = ARGV[12] ~= '' and ARGV[12] or nil
r.result = ARGV[13] == '1' and ARGV[14] or nil
finish(tonumber(ARGV[11]))
return {answer, t}
)lua";

/// ARGV: event, issuer, lifetime.
constexpr std::string_view issue_body = R"lua(
if v then
  local _, answer = row(tonumber(ARGV[1]), owned_by(ARGV[2]))
  return {answer, t}
end
r = {state = 5, hold = 0, marked = 0, permanent = 0, fence = 0, attempt = 0, owner = ARGV[2],
     created = t, updated = t}
finish(tonumber(ARGV[3]))
return {5, t}
)lua";

constexpr std::string_view find_body = R"lua(
local v = value()
if not v then return {false, -1, now()} end
return {v, expiry(), now()}
)lua";

std::string_view body_of(ScriptName name) noexcept {
  switch (name) {
    case ScriptName::begin:
      return begin_body;
    case ScriptName::write:
      return write_body;
    case ScriptName::resolve:
      return resolve_body;
    case ScriptName::issue:
      return issue_body;
    case ScriptName::find:
      return find_body;
  }
  return find_body;
}

RedisScript make(ScriptName name, Dialect dialect) {
  const bool is_new = dialect == Dialect::since_7_0;
  const std::string_view commands = is_new ? commands_since_7_0 : commands_before_7_0;
  std::string text = "local key = KEYS[1]\n";
  if (name == ScriptName::find) {
    text += clock;
    text += commands;
  } else {
    const std::string ttl = std::to_string(unfinished_ttl.count());
    text += "local v = redis.call('GET', key)\n";
    text += "local L = " + ttl + "\nlocal L_text = '" + ttl + "'\n";
    if (name == ScriptName::write && is_new) text += first_completion_since_7_0;
    text += "local T = \"" + transition_table() + "\"\n";
    text += clock;
    text += commands;
    text += layout;
    text += judging;
  }
  text += body_of(name);
  return RedisScript(std::move(text));
}

using Scripts = std::array<RedisScript, script_count>;

Scripts make_all(Dialect dialect) {
  return {make(ScriptName::begin, dialect), make(ScriptName::write, dialect),
          make(ScriptName::resolve, dialect), make(ScriptName::issue, dialect),
          make(ScriptName::find, dialect)};
}

}  // namespace

const RedisScript& script(ScriptName name, Dialect dialect) {
  static const Scripts since_7_0 = make_all(Dialect::since_7_0);
  static const Scripts before_7_0 = make_all(Dialect::before_7_0);
  const Scripts& scripts = dialect == Dialect::since_7_0 ? since_7_0 : before_7_0;
  return scripts.at(static_cast<std::size_t>(name));
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
