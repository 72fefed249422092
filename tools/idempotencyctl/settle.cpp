#include "settle.hpp"

#include <utility>

#include "text.hpp"
#ifdef IDEMPOTENCYCTL_HTTP
#include <idempotency/edges/http_message.hpp>
#endif

namespace idempotencyctl {

using std::chrono::milliseconds;
using Verdict = idem::Resolution::Verdict;

namespace {

/// `call()`, and once more when its answer was lost: both are one change. When the first may have changed something, a second one that did
/// not answer, or changed nothing, does not say that nothing was changed.
template <class Call>
bool twice(Call call) {
  std::optional<idem::Error> first;
  try {
    return call();
  } catch (const idem::Error& error) {
    if (!error.safe_to_retry()) throw;
    first = error;
  }
  if (!first->effect_possible()) return call();
  try {
    if (call()) return true;
  } catch (const idem::Error& second) {
    if (second.effect_possible()) throw;
  }
  throw idem::Error(*first);
}

/// Writes the audit lines of a change of one record, also when its outcome is not known.
///
/// Errors: `Ending` (unknown, unwritten), and those of the store when nothing was changed.
template <class Call>
bool change_record(const Audit& audit, idem::AnyStore& store, Change change,
                   const idem::Record& seen, Call call) {
  change.key = seen.key.text();
  change.before = to_json(seen);
  audit.announce(change);
  const auto note = [&](const std::string& outcome) {
    change.outcome = outcome;
    try {
      const std::optional<idem::Record> after = store.find(seen.key);
      change.after = after ? to_json(*after) : Json(nullptr);
    } catch (const idem::Error&) {
      change.after = "unknown: the store did not answer";
    }
  };
  bool changed = false;
  try {
    changed = call();
  } catch (const idem::Error& error) {
    const std::string what = error.what();
    note((error.effect_possible() ? "unknown whether it was changed: " : "nothing was changed: ") +
         what);
    static_cast<void>(audit.write(change));  // otherwise on stderr; what follows is worse
    if (!error.effect_possible()) throw;
    throw Ending(Exit::unknown,
                 "it is unknown whether the record was changed: " + what + ". Look at it again");
  }
  note(changed ? "changed" : "nothing was changed");
  if (changed) {
    audit.write_made(change);
  } else {
    static_cast<void>(audit.write(change));
  }
  return changed;
}

/// "its lease runs until ..., for another 5m".
std::string lease_of(const idem::Record& record, idem::Timestamp now) {
  if (!record.lease_until) return "its lease has no end";
  return "its lease runs until " + to_text(*record.lease_until) + ", for another " +
         to_text(*record.lease_until - now);
}

/// Whether anything is not as it was shown, but for a lease that ran and was renewed.
bool has_moved(const Shown& shown, const idem::Record& now) {
  const idem::Record& before = shown.record;
  const bool may_be_renewed = !idem::is_unsettled(before, shown.at);
  return now.ownership != before.ownership || now.created_at != before.created_at ||
         now.state != before.state || now.mode != before.mode ||
         now.effect_marked != before.effect_marked ||
         (now.lease_until != before.lease_until && !may_be_renewed);
}

/// A lost answer to a look is no change that may have been made.
std::optional<idem::Record> look_again(idem::AnyStore& store, const idem::Key& key) {
  try {
    return store.find(key);
  } catch (const idem::Error& error) {
    if (!error.effect_possible()) throw;
    throw idem::Error(idem::Errc::store_unavailable, error.what(), error.detail());
  }
}

milliseconds retention_of(const ResolveOptions& options, const idem::Key& key) {
  if (!options.retention.empty()) return parse_duration(options.retention);
  if (options.policies.empty()) return idem::Resolution{}.retention;
  const idem::Policy policy = policy_of(options.policies, key);
  return options.failed ? policy.failure_retention : policy.success_retention;
}

/// Errors: `Ending` (usage) for what contradicts itself.
void check_verdict(const ResolveOptions& options) {
  const int verdicts =
      (options.success ? 1 : 0) + (options.retry ? 1 : 0) + (options.failed ? 1 : 0);
  if (verdicts != 1) throw Ending(Exit::usage, "one of --success, --failed [TEXT] and --retry");
  const int results = (options.result_file.empty() ? 0 : 1) + (options.result_text ? 1 : 0) +
                      (options.result_json.empty() ? 0 : 1) + (options.http_status ? 1 : 0);
  if (results > 0 && !options.success) throw Ending(Exit::usage, "only a success has a result");
  if (results > 1) {
    throw Ending(Exit::usage, "one of --result, --result-text, --result-json and --http-status");
  }
  const bool has_parts = !options.http_headers.empty() || !options.http_body.empty();
  if (has_parts && !options.http_status) {
    throw Ending(Exit::usage, "--http-header and --http-body go with --http-status");
  }
  if (options.force && !options.retry) throw Ending(Exit::usage, "--force is for --retry");
}

/// As long as a record keeps it, and no longer; whole characters.
std::string failure_text_of(std::string text) {
  if (text.size() <= idem::Failure::max_reason_bytes) return text;
  std::size_t end = idem::Failure::max_reason_bytes;
  constexpr unsigned continues = 0x80U;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == continues)
    --end;
  text.resize(end);
  return text;
}

#ifdef IDEMPOTENCYCTL_HTTP
idem::HttpHeader header_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) {
    throw Ending(Exit::usage, "'" + printable(line) + "' is no header: 'Name: value'");
  }
  const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
  return {line.substr(0, colon), begin == std::string::npos ? "" : line.substr(begin)};
}

std::string response_of(const ResolveOptions& options) {
  constexpr int first_final = 200;
  constexpr int last_final = 599;
  idem::HttpResponse response{.status = *options.http_status};
  if (response.status < first_final || response.status > last_final) {
    throw Ending(Exit::usage, "--http-status is from 200 to 599");
  }
  for (const std::string& line : options.http_headers)
    response.headers.push_back(header_of(line));
  if (!options.http_body.empty()) response.body = bytes_of(options.http_body);
  try {
    return idem::encode_result(response);
  } catch (const idem::Error& error) {
    throw Ending(Exit::usage, std::string("this is no response: ") + error.what() +
                                  (error.detail().empty() ? "" : ": " + printable(error.detail())));
  }
}
#else
std::string response_of(const ResolveOptions& /*options*/) {
  throw Ending(Exit::usage, "--http-status: this build knows nothing of HTTP");
}
#endif

/// What `encode_result` gives for a type with a `JsonCodec` of this name.
std::string json_result_of(const std::string& name, const std::string& file) {
  if (!idem::detail::is_codec_name(name)) {
    throw Ending(Exit::usage, "'" + printable(name) + "' is no codec's name");
  }
  std::string result{idem::detail::result_format};
  result += '{' + name + '}';
  try {
    idem::append_sized(result, nlohmann::json::parse(bytes_of(file)).dump());
  } catch (const nlohmann::json::exception& problem) {
    throw Ending(Exit::usage, printable(file) + " holds no JSON: " + printable(problem.what()));
  }
  return result;
}

std::string encoded_result_of(const std::string& file) {
  std::string result = bytes_of(file);
  if (!result.starts_with(idem::detail::result_format) || result.size() < 2) {
    throw Ending(Exit::usage,
                 printable(file) +
                     " holds no encoded result, and every later call would fail on it: it is what "
                     "encode_result gives, or `get --result-file` writes. For text and JSON there "
                     "are --result-text and --result-json");
  }
  return result;
}

std::optional<std::string> result_of(const ResolveOptions& options) {
  if (options.http_status) return response_of(options);
  if (!options.result_json.empty()) {
    return json_result_of(options.result_json.at(0), options.result_json.at(1));
  }
  if (!options.result_file.empty()) return encoded_result_of(options.result_file);
  if (options.result_text) return idem::encode_result(*options.result_text);
  return std::nullopt;
}

}  // namespace

TooEarly::TooEarly(milliseconds left)
    : Ending(Exit::refused,
             "nothing was changed: it is too early to say retry, a request may still be on its "
             "way. It can be believed in " +
                 to_text(left) + "; before that only with --force") {}

void check_reason(const std::string& reason) {
  if (reason.empty()) throw Ending(Exit::usage, "say why: --reason TEXT stands in the audit");
}

bool has_result(const ResolveOptions& options) noexcept {
  return !options.result_file.empty() || options.result_text || !options.result_json.empty() ||
         options.http_status;
}

idem::Resolution resolution_of(const ResolveOptions& options, const idem::Key& key) {
  check_verdict(options);
  idem::Resolution resolution;
  resolution.retention = retention_of(options, key);
  if (resolution.retention < milliseconds{1}) {
    throw Ending(Exit::usage, "the record must be kept for at least 1ms");
  }
  if (options.success) {
    resolution.verdict = Verdict::succeeded;
    resolution.result = result_of(options);
  } else if (options.failed) {
    resolution.verdict = Verdict::failed;
    resolution.reason = options.failed->empty() ? "it was not done, and shall not be"
                                                : failure_text_of(*options.failed);
  } else {
    resolution.verdict = Verdict::retry;
  }
  return resolution;
}

void check_unsettled(const idem::Record& seen, idem::Timestamp now) {
  if (idem::is_unsettled(seen, now)) return;
  if (seen.state == idem::RecordState::processing) {
    throw Ending(Exit::refused,
                 "nothing was changed: its owner is alive, or nobody can say that it is not: " +
                     lease_of(seen, now) + ". `release` takes it from an owner that hangs");
  }
  throw Ending(Exit::refused, "nothing was changed: the record is " +
                                  std::string(idem::to_string(seen.state)) +
                                  ", and what is finished stays as it is");
}

void check_retry(const idem::Record& seen, idem::Timestamp now, milliseconds margin) {
  const bool is_uncertain = seen.state == idem::RecordState::uncertain;
  const idem::Timestamp silent_since =
      is_uncertain ? seen.updated_at : seen.lease_until.value_or(now);
  const milliseconds left = silent_since + margin - now;
  if (left > milliseconds{0}) throw TooEarly(left);
}

idem::Policy policy_of(const std::string& file, const idem::Key& key) {
  const idem::PolicyTable table =
      file.empty() ? idem::PolicyTable{} : idem::PolicyTable::from_json_file(file);
  return table.find(key.type());
}

void check_release(const Shown& shown, Doubt doubt) {
  const idem::Record& record = shown.record;
  if (record.state != idem::RecordState::processing) {
    throw Ending(Exit::refused, "nothing was changed: the record is " +
                                    std::string(idem::to_string(record.state)) +
                                    "; only one that is processing can be released");
  }
  if (doubt == Doubt::accept) return;
  if (!idem::is_unsettled(record, shown.at)) {
    throw Ending(Exit::refused,
                 "nothing was changed: its owner is at work as far as is known, " +
                     lease_of(record, shown.at) +
                     ". Released now, the next call runs it beside that owner, and its effect can "
                     "happen twice. Wait, or say --force when the owner is known to be dead");
  }
  const bool holds = record.mode == idem::RecordMode::hold || record.effect_marked ||
                     shown.policy.on_expired_lease == idem::RecordMode::hold;
  if (holds) {
    throw Ending(
        Exit::refused,
        "nothing was changed: its effect may have happened, and releasing it lets it happen "
        "again. Find out and use `resolve`, or say --force");
  }
}

bool settle(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
            const idem::Resolution& resolution, Change change) {
  return change_record(audit, store, std::move(change), seen, [&] {
    return twice(
        [&] { return store.admin()->resolve(seen, resolution) == idem::WriteOutcome::stored; });
  });
}

bool release_seen(const Audit& audit, const OpenedStore& store, const Shown& shown, Change change) {
  const milliseconds retention = shown.policy.failure_retention;
  const idem::Resolution free{.verdict = Verdict::retry, .retention = retention};
  return change_record(audit, *store, std::move(change), shown.record, [&] {
    const std::optional<idem::Record> now = look_again(*store, shown.record.key);
    if (!now || has_moved(shown, *now)) return false;
    if (idem::is_unsettled(shown.record, shown.at)) {  // as it was seen, or not at all
      return twice([&] {
        return store->admin()->resolve(shown.record, free) == idem::WriteOutcome::stored;
      });
    }
    return twice([&] {
      const auto outcome = store->release(now->key, now->ownership, retention);
      if (outcome == idem::ReleaseOutcome::unknown) {
        throw idem::Error(idem::Errc::store_reply_lost, "the store did not answer");
      }
      return outcome == idem::ReleaseOutcome::released;
    });
  });
}

}  // namespace idempotencyctl
