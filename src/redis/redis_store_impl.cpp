#include "redis/redis_store_impl.hpp"

#include <algorithm>
#include <utility>

#include "core/fork_generation.hpp"
#include "core/verdict.hpp"
#include "redis/redis_options.hpp"
#include "redis/redis_server_check.hpp"
#include "redis/redis_tls.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

using std::chrono::milliseconds;

/// What one Redis string may hold is 512 MiB; a record has other parts, too.
constexpr std::size_t most_bytes = std::size_t{511} << 20;
/// Calls sent before their answers are read: few enough that neither side's buffers fill.
constexpr std::size_t calls_at_once = 256;

RedisOptions checked(RedisOptions options) {
  check_options(options);
  if (options.encryption == RedisEncryption::tls)
    static_cast<void>(Tls(options));  // are the files there?
  return options;
}

std::string_view bytes_of(const OwnerToken& owner) noexcept {
  return {reinterpret_cast<const char*>(owner.bytes().data()), owner.bytes().size()};
}

std::string to_text(milliseconds span) { return std::to_string(span.count()); }
std::string to_text(Event event) { return std::to_string(static_cast<int>(event)); }

std::string_view flag(bool set) noexcept { return set ? "1" : "0"; }

WriteOutcome to_outcome(Connection& connection, const redisReply& reply) {
  connection.show_clock(as_integer(element(reply, 1)));
  return as_integer(element(reply, 0)) == static_cast<std::int64_t>(Answer::stored)
             ? WriteOutcome::stored
             : WriteOutcome::lost;
}

/// What is told of a record that `begin` met.
BeginOutcome to_outcome(Answer answer, StoredRecord record, const BeginRequest& request,
                        std::int64_t end, Timestamp now) {
  const RecordFacts facts = facts_of(record, end);
  const std::uint64_t fence = record.ownership.fence;
  const auto remaining = [&] { return remaining_of(record, end, now); };
  switch (answer) {
    case Answer::acquired:
      return Acquired{fence, record.attempt};
    case Answer::in_progress:
      return InProgress{std::max(milliseconds{1}, facts.lease_until - now)};
    case Answer::completed:
      return Completed{std::move(record.result), remaining(), fence, record.fingerprint};
    case Answer::failed:
      return Failed{
          Failure{record.retryability, std::move(record.reason), std::move(record.result)},
          remaining(), fence, record.fingerprint};
    case Answer::uncertain:
      return Uncertain{fence, updated_at(record, end)};
    case Answer::stored:
    case Answer::lost:
      break;
  }
  return not_admitted(request);
}

/// The answer to a record that nobody's `begin` changes, whatever the time: no script is needed.
std::optional<BeginOutcome> settled(const StoredRecord& record, const BeginRequest& request,
                                    Timestamp now) {
  if (record.fingerprint && request.fingerprint) {
    const FingerprintMatch match = request.fingerprint->match(*record.fingerprint);
    if (match != FingerprintMatch::same) return Mismatch{match, record.fingerprint->scheme};
  }
  if (record.state == RecordState::processing)
    return std::nullopt;  // its lease has to be looked at
  RecordFacts facts = facts_of(record, no_end);
  facts.expires_at = never;  // Redis had it, so its retention is not over
  const Phase phase = phase_of(facts, now);
  const Standing standing =
      record.ownership.owner == request.owner ? Standing::current : Standing::other;
  const auto judged = [&](LeaseStatus lease) {
    return transition(phase, Event::begin, standing, lease, mode_of(facts));
  };
  const Transition step = judged(LeaseStatus::running);
  if (step != unchanged(phase, step.answer) || step != judged(LeaseStatus::run_out)) {
    return std::nullopt;
  }
  return to_outcome(step.answer, record, request, no_end, now);
}

/// Positions in a batch.
using Rows = std::vector<std::size_t>;

/// Runs a script for each of many rows, in as few exchanges as the server's knowledge of the script allows: `add(commands, row, naming)`
/// gives the commands, `note(row, reply)` takes the answers.
template <class Add, class Note>
void run_for_each(Connection& connection, Rows rows, Add add, Note note) {
  const auto exchange = [&](Connection::Naming first) {
    Commands commands;
    for (std::size_t at = 0; at < rows.size(); ++at)
      add(commands, rows[at], at == 0 ? first : Connection::Naming::sha1);
    const std::vector<ReplyPtr> replies = connection.exchange(commands);
    Rows missed;
    for (std::size_t at = 0; at < rows.size(); ++at) {
      if (is_noscript(*replies[at])) {
        missed.push_back(rows[at]);
      } else {
        note(rows[at], *replies[at]);
      }
    }
    rows = std::move(missed);
  };
  exchange(Connection::Naming::sha1);
  // The first brings the script for the others; should it be lost again on the way, there is one row less each time.
  while (!rows.empty())
    exchange(Connection::Naming::text);
}

/// What the calls of one batch have in common. One that is refused keeps none of the others from being made.
class Batch {
 public:
  Batch(const StoreImpl& store, Connection& connection) : store_(store), connection_(connection) {}

 protected:
  /// `perform(rows)` for all positions, a part after the other.
  /// Errors: `ErrorReply`, the first one, when all others have been tried; `Broken`.
  template <class Perform>
  void for_each_part(std::size_t size, Perform perform) {
    try {
      for (std::size_t begin = 0; begin < size && !is_over(); begin += calls_at_once) {
        Rows rows;
        for (std::size_t row = begin; row < std::min(size, begin + calls_at_once); ++row)
          rows.push_back(row);
        perform(std::move(rows));
      }
    } catch (Broken& broken) {
      if (wrote_) broken.progress = Broken::Progress::sent;
      throw;
    }
    if (!error_) return;
    if (wrote_) error_->others = ErrorReply::Others::written;
    throw *error_;
  }
  /// `take()` with the answer of one call; keeps the first error for later.
  template <class Take>
  void note(const redisReply& reply, Take take) {
    try {
      throw_if_error(reply);
      take();
    } catch (const ErrorReply& error) {
      if (!error_) error_ = error;
    }
  }
  /// Takes an error for that of one record, unless the connection is over.
  void forgive() noexcept {
    if (!is_over()) error_.reset();
  }
  void note_write() noexcept { wrote_ = true; }

  const StoreImpl& store_;
  Connection& connection_;

 private:
  /// Whether the connection has no more answers to give.
  [[nodiscard]] bool is_over() const noexcept {
    return error_ && error_->meaning.fate == ConnectionFate::discard;
  }

  std::optional<ErrorReply> error_;
  bool wrote_ = false;
};

/// The renewals of one batch.
class RenewalBatch final : private Batch {
 public:
  RenewalBatch(const StoreImpl& store, Connection& connection, const std::vector<Renewal>& renewals)
      : Batch(store, connection), renewals_(renewals), outcomes_(renewals.size()) {}

  [[nodiscard]] std::vector<WriteOutcome> outcomes() {
    for_each_part(renewals_.size(), [this](Rows rows) {
      run_for_each(
          connection_, std::move(rows),
          [this](Commands& commands, std::size_t row, Connection::Naming naming) {
            const Renewal& renewal = renewals_[row];
            connection_.add_run(commands, ScriptName::write, store_.key_of(renewal.key),
                                {to_text(Event::renew), bytes_of(renewal.ownership.owner),
                                 std::to_string(renewal.ownership.fence),
                                 to_text(stored_lease(renewal.lease)), "", "0", ""},
                                naming);
          },
          [this](std::size_t row, const redisReply& reply) {
            note(reply, [&] {
              outcomes_[row] = to_outcome(connection_, reply);
              if (outcomes_[row] == WriteOutcome::stored) note_write();
            });
          });
    });
    return std::move(outcomes_);
  }

 private:
  const std::vector<Renewal>& renewals_;
  std::vector<WriteOutcome> outcomes_;
};

/// Whether the native command may be tried first: it makes records where there are none.
bool begins_natively(const Connection& connection, const BeginRequest& request) noexcept {
  return connection.dialect() == Dialect::since_7_0 && request.admission == Admission::any;
}

void add_native_begin(Commands& commands, const std::string& key, const BeginRequest& request) {
  const std::string first = first_value(request);
  const std::string ttl = to_text(unfinished_ttl);
  commands.add({"SET", key, first, "NX", "GET", "PX", ttl});
}

/// What the native command tells; nothing when only the script can.
std::optional<BeginOutcome> outcome_of_native(Connection& connection, const redisReply& reply,
                                              const BeginRequest& request) {
  const std::optional<std::string_view> before = as_text(reply);
  if (!before) return Acquired{1, 1};
  const Timestamp now = connection.clock().latest(std::chrono::steady_clock::now());
  return settled(decode(*before), request, now);
}

/// The words of the script of `begin`, kept while they are sent.
struct ScriptedBegin {
  explicit ScriptedBegin(const BeginRequest& request)
      : first(first_value(request)),
        owner(bytes_of(request.owner)),
        lease(to_text(stored_lease(request.lease))),
        mode(flag(request.mode == RecordMode::hold)),
        event(to_text(event_of(request.admission))) {
    if (!request.fingerprint) return;
    current = to_bytes(request.fingerprint->current());
    if (request.fingerprint->earlier()) earlier = to_bytes(*request.fingerprint->earlier());
  }
  [[nodiscard]] Commands::Words words() const {
    return {first, owner, lease, mode, current, earlier, event};
  }

  std::string first;
  std::string_view owner;
  std::string lease;
  std::string_view mode;
  std::string current = {};
  std::string earlier = {};
  std::string event;
};

BeginOutcome outcome_of_script(Connection& connection, const redisReply& reply,
                               const BeginRequest& request) {
  const std::int64_t answer = as_integer(element(reply, 0));
  if (answer == static_cast<std::int64_t>(Answer::lost)) return not_admitted(request);
  StoredRecord record = decode(as_text(element(reply, 1)).value_or(""));
  const std::int64_t end = as_integer(element(reply, 2));
  const std::int64_t now = as_integer(element(reply, 3));
  connection.show_clock(now);
  if (answer == mismatch_answer) {
    const Fingerprint::Part stored = record.fingerprint.value_or(Fingerprint::Part{});
    return Mismatch{
        request.fingerprint ? request.fingerprint->match(stored) : FingerprintMatch::different,
        stored.scheme};
  }
  return to_outcome(static_cast<Answer>(answer), std::move(record), request, end,
                    Timestamp{milliseconds{now}});
}

/// Many a `begin`: the native commands in one exchange, and the scripts that are still needed in another.
class BeginBatch final : private Batch {
 public:
  BeginBatch(const StoreImpl& store, Connection& connection,
             const std::vector<BeginRequest>& requests)
      : Batch(store, connection), requests_(requests), answers_(requests.size()) {}

  /// Errors: only what concerns all of them.
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> outcomes() {
    for_each_part(requests_.size(), [this](Rows rows) {
      Rows left = begin_natively(std::move(rows));
      if (!left.empty()) begin_scripted(std::move(left));
      const auto is_answered = [](const auto& answer) { return answer.has_value(); };
      if (std::any_of(answers_.begin(), answers_.end(), is_answered)) forgive();
    });
    return std::move(answers_);
  }

 private:
  /// Gives the rows that are not answered yet.
  [[nodiscard]] Rows begin_natively(Rows rows) {
    Commands commands;
    Rows asked;
    for (const std::size_t row : rows) {
      if (!begins_natively(connection_, requests_[row])) continue;
      add_native_begin(commands, store_.key_of(requests_[row].key), requests_[row]);
      asked.push_back(row);
    }
    if (asked.empty()) return rows;
    const bool asks_the_time = connection_.clock().is_stale(std::chrono::steady_clock::now());
    if (asks_the_time) commands.add({"TIME"});
    const std::vector<ReplyPtr> replies = connection_.exchange(commands);
    if (asks_the_time && !is_error(*replies.back())) connection_.show_clock(*replies.back());
    Rows done;
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const std::size_t row = asked[at];
      done.push_back(row);
      note(*replies[at], [&] {
        if (!read_by_itself([&] {
              answers_[row] = outcome_of_native(connection_, *replies[at], requests_[row]);
            })) {
          return;
        }
        if (!answers_[row]) done.pop_back();
        note_acquired(row);
      });
    }
    std::erase_if(
        rows, [&](std::size_t row) { return std::binary_search(done.begin(), done.end(), row); });
    return rows;
  }

  void begin_scripted(Rows rows) {
    run_for_each(
        connection_, std::move(rows),
        [this](Commands& commands, std::size_t row, Connection::Naming naming) {
          const ScriptedBegin begin(requests_[row]);
          connection_.add_run(commands, ScriptName::begin, store_.key_of(requests_[row].key),
                              begin.words(), naming);
        },
        [this](std::size_t row, const redisReply& reply) {
          note(reply, [&] {
            static_cast<void>(read_by_itself(
                [&] { answers_[row] = outcome_of_script(connection_, reply, requests_[row]); }));
            note_acquired(row);
          });
        });
  }

  /// False when the record is one that cannot be read: `begin` says so of it alone.
  template <class Read>
  [[nodiscard]] static bool read_by_itself(Read read) {
    try {
      read();
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::store_corrupt) throw;
      return false;
    }
  }

  void note_acquired(std::size_t row) noexcept {
    if (answers_[row] && std::holds_alternative<Acquired>(*answers_[row])) note_write();
  }

  const std::vector<BeginRequest>& requests_;
  std::vector<std::optional<BeginOutcome>> answers_;
};

}  // namespace

StoreImpl::StoreImpl(RedisOptions options)
    : options_(checked(std::move(options))),
      generation_(fork_generation()),
      pool_(options_, [this](Connection& connection) { greet(connection); }) {
  try {
    call(Effect::reads, [](Connection&) { return 0; });
  } catch (const Error& error) {
    if (!error.safe_to_retry()) throw;  // otherwise the server may come later
  }
}

bool StoreImpl::is_inherited() const noexcept { return generation_ != fork_generation(); }

void StoreImpl::refuse_after_fork() const {
  if (!is_inherited()) return;
  throw Error(Errc::used_after_fork,
              "this Redis store was made before fork(); make the child's own after it");
}

void StoreImpl::greet(Connection& connection) {
  if (options_.observer == nullptr || server_checked_.exchange(true)) return;
  try {
    report_hazards(connection, *options_.observer);
  } catch (...) {
    server_checked_.store(false);
    throw;
  }
}

std::string StoreImpl::key_of(const Key& key) const {
  std::string text;
  text.reserve(options_.prefix.size() + key.text().size() + 3);
  text += options_.prefix;
  text += ":{";
  text += key.text();
  text += '}';
  return text;
}

std::optional<Key> StoreImpl::to_key(std::string_view text) const {
  const std::size_t front = options_.prefix.size() + 2;
  if (text.size() <= front || !text.ends_with('}')) return std::nullopt;
  text = text.substr(front, text.size() - front - 1);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  try {
    return Key(text.substr(0, colon), text.substr(colon + 1));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string StoreImpl::scan_pattern(const std::optional<std::string>& type) const {
  // Neither a prefix nor a type may hold a character that means something in a pattern.
  return options_.prefix + ":{" + (type ? *type + ":" : "") + "*";
}

BeginOutcome StoreImpl::begin(Connection& connection, const BeginRequest& request) const {
  const std::string key = key_of(request.key);
  if (begins_natively(connection, request)) {
    Commands commands;
    add_native_begin(commands, key, request);
    const bool asks_the_time = connection.clock().is_stale(std::chrono::steady_clock::now());
    if (asks_the_time) commands.add({"TIME"});
    const std::vector<ReplyPtr> replies = connection.exchange(commands);
    throw_if_error(*replies.front());
    if (asks_the_time && !is_error(*replies.back())) connection.show_clock(*replies.back());
    if (std::optional<BeginOutcome> outcome =
            outcome_of_native(connection, *replies.front(), request)) {
      return *std::move(outcome);
    }
  }
  const ScriptedBegin begin(request);
  return outcome_of_script(connection, *connection.run(ScriptName::begin, key, begin.words()),
                           request);
}

std::vector<std::optional<BeginOutcome>> StoreImpl::begin_many(
    const std::vector<BeginRequest>& requests) {
  if (requests.empty()) return {};
  return call(Effect::writes, [&](Connection& connection) {
    BeginBatch batch(*this, connection, requests);
    return batch.outcomes();
  });
}

WriteOutcome StoreImpl::issue(const IssueRequest& request) {
  check_issue(request);
  const std::string name = key_of(request.key);
  const std::string event = to_text(Event::issue);
  const std::string lifetime = to_text(stored_retention(request.lifetime));
  return call(Effect::writes, [&](Connection& connection) {
    return to_outcome(connection, *connection.run(ScriptName::issue, name,
                                                  {event, bytes_of(request.issuer), lifetime}));
  });
}

WriteOutcome StoreImpl::write(const Key& key, const Write& write) {
  const bool has_result = write.result != nullptr && write.result->has_value();
  const std::string_view result = has_result ? std::string_view(**write.result) : "";
  if (result.size() + write.reason.size() > most_bytes) {
    throw Error(Errc::too_large, "redis store: a record holds at most 511 MiB");
  }
  const std::string name = key_of(key);
  const std::string event = to_text(write.event);
  const std::string fence = std::to_string(write.by.fence);
  const std::string span = to_text(write.span);
  std::vector<std::string_view> words{event,        bytes_of(write.by.owner), fence, span,
                                      write.reason, flag(has_result),         result};
  std::string behind_marks;
  std::string step;
  if (write.event == Event::complete && write.by.fence == 1) {
    behind_marks = bytes_of(write.by.owner).substr(0, kept_owner_bytes);
    behind_marks += retention_code(write.span);
    step = std::to_string(end_mark_step(write.span));
    words.insert(words.end(), {behind_marks, step});
  }
  int asked = 0;
  return call(Effect::writes, [&](Connection& connection) {
    ++asked;
    const WriteOutcome outcome =
        to_outcome(connection, *connection.run(ScriptName::write, name, words));
    // What is given back does not stay its owner's, as what is settled does not stay its resolver's.
    return write.event == Event::release ? detail::outcome_of_repeated(outcome, asked > 1)
                                         : outcome;
  });
}

std::vector<WriteOutcome> StoreImpl::renew_many(const std::vector<Renewal>& renewals) {
  return call(Effect::writes, [&](Connection& connection) {
    RenewalBatch batch(*this, connection, renewals);
    return batch.outcomes();
  });
}

WriteOutcome StoreImpl::resolve(const Record& seen, const Resolution& resolution) {
  const bool succeeded = resolution.verdict == Resolution::Verdict::succeeded;
  const bool has_result = succeeded && resolution.result.has_value();
  const std::string name = key_of(seen.key);
  const std::string event = to_text(event_of(resolution.verdict));
  const std::string fence = std::to_string(seen.ownership.fence);
  const std::string next_fence = std::to_string(seen.ownership.fence + 1);
  const std::string created = to_text(seen.created_at.time_since_epoch());
  const std::string state = std::to_string(static_cast<int>(seen.state));
  const std::string deadline =
      seen.lease_until ? to_text(seen.lease_until->time_since_epoch()) : "";
  const std::string retention = to_text(stored_retention(resolution.retention));
  const std::string_view reason = succeeded ? std::string_view{} : resolution.reason;
  const std::string_view result = has_result ? std::string_view(*resolution.result) : "";
  int asked = 0;
  return call(Effect::writes, [&](Connection& connection) {
    ++asked;
    const ReplyPtr reply = connection.run(
        ScriptName::resolve, name,
        {event, bytes_of(seen.ownership.owner), fence, created, state,
         flag(seen.mode == RecordMode::hold), flag(seen.effect_marked), deadline,
         bytes_of(resolution.resolver), next_fence, retention, reason, flag(has_result), result});
    return detail::outcome_of_repeated(to_outcome(connection, *reply), asked > 1);
  });
}

std::optional<StoreImpl::Found> StoreImpl::found(const redisReply& reply) {
  const std::optional<std::string_view> value = as_text(element(reply, 0));
  if (!value) return std::nullopt;
  return Found{decode(*value), as_integer(element(reply, 1)),
               Timestamp{milliseconds{as_integer(element(reply, 2))}}};
}

void StoreImpl::Attempts::note(const Broken& broken) noexcept {
  if (effect_ == Effect::writes && broken.progress == Broken::Progress::sent) {
    may_have_written_ = true;
  }
}

void StoreImpl::Attempts::note(const ErrorReply& reply) noexcept {
  if (reply.others == ErrorReply::Others::written) may_have_written_ = true;
}

bool StoreImpl::Attempts::may_repeat(const Broken& broken, Pool::Loan::Origin origin) noexcept {
  if (repeated_ || origin != Pool::Loan::Origin::idle || broken.cause != Broken::Cause::closed) {
    return false;
  }
  repeated_ = true;
  return true;
}

bool StoreImpl::Attempts::may_repeat(const ErrorReply& reply, Pool::Loan::Origin origin) noexcept {
  if (repeated_ || origin != Pool::Loan::Origin::idle ||
      reply.meaning.code != Errc::store_unavailable) {
    return false;
  }
  repeated_ = true;
  return true;
}

Error StoreImpl::Attempts::reply_lost(std::string words) const {
  return Error(Errc::store_reply_lost,
               "redis store: the request was sent and not answered; repeat the call with the same "
               "token",
               std::move(words));
}

Error StoreImpl::Attempts::error_of(const Broken& broken) const {
  if (may_have_written_) return reply_lost(broken.words);
  return Error(
      Errc::store_unavailable,
      broken.cause == Broken::Cause::timed_out
          ? "redis store: the server did not answer in time; repeat the call"
          : "redis store: the connection ended before the request was sent; repeat the call",
      broken.words);
}

Error StoreImpl::Attempts::error_of(const ErrorReply& reply) const {
  if (reply.others == ErrorReply::Others::written) {
    return Error(Errc::store_reply_lost,
                 "redis store: the server refused a part of the call and did the rest; repeat what "
                 "is not known with the same token",
                 reply.words);
  }
  if (may_have_written_) return reply_lost(reply.words);
  return make_error(reply);
}

void StoreImpl::Attempts::rethrow(const Error& error) const {
  if (may_have_written_ && !error.effect_possible()) throw reply_lost(error.detail());
  throw error;
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
