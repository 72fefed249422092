#include "console_api.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <idempotency/execution.hpp>
#include <iostream>

#include "settle.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;

namespace {

constexpr std::size_t most_reason_bytes = 2'000;
constexpr std::size_t most_types = 100;

idem::Key key_of(const Query& query) { return parse_key(from_hex(query("id"))); }

/// Changes with everything that a settlement depends on, and tells nothing of the owner, which is a secret of its process.
std::string version_of(const idem::Record& record) {
  const auto& owner = record.ownership.owner.bytes();
  const auto digest =
      idem::Fingerprint::of(std::string(owner.begin(), owner.end()), record.ownership.fence,
                            static_cast<int>(record.state), static_cast<int>(record.mode),
                            record.effect_marked, record.created_at.time_since_epoch().count(),
                            record.updated_at.time_since_epoch().count())
          .current()
          .digest;
  return hex_of({reinterpret_cast<const char*>(digest.data()), 16});
}

std::size_t limit_of(const Query& query) {
  const std::string text = query("limit");
  if (text.empty()) return 100;
  std::size_t limit = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (problem != std::errc{} || end != text.data() + text.size() || limit == 0) {
    throw Ending(Exit::usage, "the limit is a number from 1");
  }
  return std::min(limit, ConsoleApi::most_records);
}

/// What a codec of this library wrote, by the form in front of it.
struct ShownResult {
  std::string codec = "unknown";
  std::optional<std::string> text = std::nullopt;
};

ShownResult shown(const std::string& result) {
  if (result.size() < 2) return {};
  try {
    switch (result[1]) {
      case '0':
        return {"nothing", ""};
      case 's':
        return {"text", idem::decode_result<std::string>(result)};
      case 'i':
        return {"integer", std::to_string(idem::decode_result<std::int64_t>(result))};
      case 'b':
        return {"bool", idem::decode_result<bool>(result) ? "true" : "false"};
      case '{': {
        const std::size_t end = result.find('}');
        if (end == std::string::npos) return {};
        return {result.substr(2, end - 2), result.substr(end + 1)};
      }
      default:
        return {"structured"};
    }
  } catch (const idem::Error&) {  // of another form after all
    return {"structured"};
  }
}

/// Without the bytes, unless they may be shown.
Json describe_result(const std::string& result, bool with_bytes) {
  ShownResult what = shown(result);
  Json json{{"bytes", result.size()}, {"codec", printable(what.codec)}};
  if (!with_bytes) return json;
  if (!what.text) {
    json["why_not"] = "only the service's own code can read a result of this form";
  } else if (what.text->size() > ConsoleApi::most_shown) {
    json["why_not"] = "it is larger than 64 KiB: `get --result-file` writes it";
  } else if (!is_text(*what.text)) {
    json["why_not"] = "it is no text: `get --result-file` writes it";
  } else {
    json["text"] = *std::move(what.text);
  }
  return json;
}

std::string text_in(const Json& body, const char* name) {
  const auto member = body.find(name);
  if (member == body.end() || member->is_null()) return {};
  if (!member->is_string()) throw Ending(Exit::usage, std::string(name) + " is a text");
  return member->get<std::string>();
}

void check_members(const Json& body) {
  constexpr std::array<std::string_view, 9> known{
      "id", "version", "verdict", "reason", "who", "text", "result_text", "retention", "force"};
  if (!body.is_object()) throw Ending(Exit::usage, "the body is no JSON object");
  for (const auto& [name, value] : body.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Ending(Exit::usage, "'" + printable(name) + "' means nothing here");
    }
  }
}

SettleRequest read_body(const std::string& text, const std::string& policies) {
  const Json body = Json::parse(text, nullptr, false);
  check_members(body);
  SettleRequest asked{.key = parse_key(from_hex(text_in(body, "id")))};
  asked.version = text_in(body, "version");
  asked.who = text_in(body, "who");
  asked.resolve.policies = policies;
  const auto force = body.find("force");
  if (force != body.end() && !force->is_boolean()) throw Ending(Exit::usage, "force is a bool");
  asked.force = force != body.end() && force->get<bool>();
  asked.resolve.force = asked.force;
  asked.resolve.reason = text_in(body, "reason");
  asked.resolve.retention = text_in(body, "retention");
  check_reason(asked.resolve.reason);
  if (asked.resolve.reason.size() > most_reason_bytes || asked.who.size() > 200) {
    throw Ending(Exit::usage, "the reason, or the name, is too long");
  }
  const std::string verdict = text_in(body, "verdict");
  if (verdict != "success" && verdict != "failed" && verdict != "retry" && verdict != "release") {
    throw Ending(Exit::usage, "the verdict is success, failed, retry or release");
  }
  if ((body.contains("text") && verdict != "failed") ||
      (body.contains("result_text") && verdict != "success")) {
    throw Ending(Exit::usage, "only a failure has a text, and only a success a result");
  }
  if (verdict == "success") asked.resolve.success = true;
  if (verdict == "failed") asked.resolve.failed = text_in(body, "text");
  if (verdict == "retry") asked.resolve.retry = true;
  asked.releases = verdict == "release";
  if (body.contains("result_text")) asked.resolve.result_text = text_in(body, "result_text");
  return asked;
}

/// What the look could not read; of which type or state it is, its key says.
Json unreadable_in(const Look& look, const std::string& type) {
  Json all = Json::array();
  for (const auto& [text, why] : look.unreadable) {
    const idem::Key key = parse_key(text);
    if (type.empty() || key.type() == type)
      all.push_back(idempotencyctl::to_json(idem::RecordPage::Unreadable{key, why}));
  }
  return all;
}

Answer refusal(int status, const char* code, const std::string& text) {
  return {status, {{"code", code}, {"text", text}}};
}

}  // namespace

Json ConsoleApi::to_json(const idem::Record& record, idem::Timestamp now) const {
  const Situation situation = situation_of(record, now);
  Json json = idempotencyctl::to_json(record);
  json["id"] = hex_of(record.key.text());
  json["version"] = version_of(record);
  json["situation"] = to_string(situation);
  json["since"] = to_text(since(record, situation));
  if (situation != Situation::finished && situation != Situation::running) {
    json["retry_from"] = to_text(since(record, situation) + options_.margin);
  }
  return json;
}

Answer ConsoleApi::overview() const {
  const Watch::State state = watch_.state();
  Json json{{"store", without_password(settings_.store)},
            {"settles", options_.settles},
            {"shows_results", options_.shows_results},
            {"who", settings_.who},
            {"problem", state.problem}};
  if (state.failing_since) json["failing_since"] = to_text(*state.failing_since);
  if (state.look == nullptr) return {200, std::move(json)};
  const Look& look = *state.look;
  const auto age =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - look.began);
  json["at"] = to_text(look.at);
  json["now"] = to_text(look.at + age);
  json["took_milliseconds"] = look.took.count();
  json["counts"] = idempotencyctl::to_json(look.statistics);
  json["reconciling"] = look.reconciling;
  const auto counts_in = [](const Look::Counts& counts) {
    return Json{{"running", counts.running},
                {"uncertain", counts.uncertain},
                {"silent", counts.silent},
                {"abandoned", counts.abandoned}};
  };
  json["unfinished"] = counts_in(look.counts());
  Json types = Json::object();
  for (const auto& [type, counts] : look.by_type) {
    if (types.size() < most_types) types[type] = counts_in(counts);
  }
  json["by_type"] = std::move(types);
  const auto first = [&](const std::vector<idem::Record>& records) -> Json {
    if (records.empty()) return nullptr;
    return to_text(since(records.front(), situation_of(records.front(), look.at)));
  };
  json["stuck_since"] = first(look.stuck);
  json["running_since"] = first(look.running);
  Json history = Json::array();
  for (const Watch::Point& point : state.history) {
    history.push_back(
        {{"at", to_text(point.at)}, {"running", point.running}, {"stuck", point.stuck}});
  }
  json["history"] = std::move(history);
  return {200, std::move(json)};
}

Answer ConsoleApi::duplicates() const { return {200, duplicates_.to_json()}; }

Answer ConsoleApi::records(const Query& query) const {
  const std::string state = query("state");
  return state == "stuck" || state == "running" ? from_look(query) : from_store(query);
}

Answer ConsoleApi::from_look(const Query& query) const {
  const std::shared_ptr<const Look> look = watch_.state().look;
  if (look == nullptr) throw Ending(Exit::store, "the store has not answered yet");
  const std::string type = query("type");
  const std::string age = query("older_than");
  const std::string after = query("after");
  const milliseconds span = age.empty() ? milliseconds{0} : parse_duration(age);
  const std::size_t limit = limit_of(query);
  const bool wants_stuck = query("state") == "stuck";
  const std::vector<idem::Record>& all = wants_stuck ? look->stuck : look->running;
  auto record = all.begin();
  if (!after.empty()) {
    const auto is_last = [&](const idem::Record& r) { return hex_of(r.key.text()) == after; };
    record = std::find_if(all.begin(), all.end(), is_last);
    if (record == all.end()) throw Ending(Exit::usage, "the list has changed: begin it anew");
    ++record;
  }
  Json records = Json::array();
  for (; record != all.end() && records.size() < limit; ++record) {
    const bool is_old = look->at - since(*record, situation_of(*record, look->at)) >= span;
    if ((type.empty() || record->key.type() == type) && is_old)
      records.push_back(to_json(*record, look->at));
  }
  const std::string cursor = record == all.end() ? "" : records.back().at("id");
  const Look::Counts counts = look->counts();
  const std::size_t total =
      wants_stuck ? counts.uncertain + counts.silent + counts.abandoned : counts.running;
  return {200,
          {{"records", std::move(records)},
           {"unreadable", unreadable_in(*look, type)},
           {"cursor", cursor},
           {"not_kept", total > all.size() ? total - all.size() : 0},
           {"at", to_text(look->at)}}};
}

Answer ConsoleApi::from_store(const Query& query) const {
  idem::RecordFilter filter;
  filter.state = parse_state(query("state"));
  const std::string type = query("type");
  const std::string age = query("older_than");
  if (!type.empty()) filter.type = type;
  if (!age.empty()) filter.unchanged_for = parse_duration(age);
  const std::size_t limit = limit_of(query);
  const std::shared_ptr<OpenedStore> store = watch_.store();
  const idem::Timestamp now = store->now();
  const idem::RecordPage page = (*store)->admin()->list(filter, from_hex(query("after")), limit);
  Json records = Json::array();
  for (const idem::Record& record : page.records)
    records.push_back(to_json(record, now));
  Json unreadable = Json::array();
  for (const idem::RecordPage::Unreadable& one : page.unreadable)
    unreadable.push_back(idempotencyctl::to_json(one));
  return {200,
          {{"records", std::move(records)},
           {"unreadable", std::move(unreadable)},
           {"cursor", hex_of(page.cursor)},
           {"not_kept", 0},
           {"at", to_text(now)}}};
}

Answer ConsoleApi::record(const Query& query) const {
  const bool with_bytes = query("result") == "yes";
  if (with_bytes && !options_.shows_results) {
    return refusal(403, "results",
                   "results can be personal data: they are shown under --show-results only");
  }
  const idem::Key key = key_of(query);
  const std::shared_ptr<OpenedStore> store = watch_.store();
  const std::optional<idem::Record> found = (*store)->find(key);
  if (!found) return refusal(404, "absent", "there is no such record any more");
  const idem::Timestamp now = store->now();
  Json json = to_json(*found, now);
  if (found->result) json["result"] = describe_result(*found->result, with_bytes);
  if (found->failure && found->failure->result) {
    json["result"] = describe_result(*found->failure->result, with_bytes);
  }
  return {200, {{"record", std::move(json)}, {"now", to_text(now)}}};
}

Answer ConsoleApi::derived(const Query& query) const {
  return {200, {{"derived", idem::derived_key(key_of(query), query("name"))}}};
}

Answer ConsoleApi::changed_meanwhile(const OpenedStore& store, const idem::Key& key) const {
  const std::optional<idem::Record> now = store->find(key);
  Answer answer =
      refusal(409, "changed",
              now ? "Nothing was changed: the record is no longer the one that you saw. Look again."
                  : "Nothing was changed: the record is gone.");
  answer.body["record"] = now ? to_json(*now, store.now()) : Json(nullptr);
  return answer;
}

bool ConsoleApi::change(const OpenedStore& store, const idem::Record& seen,
                        const SettleRequest& asked, Change change) const {
  if (asked.releases) {
    const Shown shown{seen, store.now(), policy_of(options_.policies, asked.key)};
    check_release(shown, asked.force ? Doubt::accept : Doubt::refuse);
    const Audit audit(settings_);
    return release_seen(audit, store, shown, std::move(change));
  }
  const idem::Resolution resolution = resolution_of(asked.resolve, asked.key);
  const idem::Timestamp now = store.now();
  check_unsettled(seen, now);
  if (asked.resolve.retry && !asked.resolve.force) check_retry(seen, now, options_.margin);
  const Audit audit(settings_);
  return idempotencyctl::settle(audit, *store, seen, resolution, std::move(change));
}

Answer ConsoleApi::settle(const std::string& body, const std::string& from) const {
  const SettleRequest asked = read_body(body, options_.policies);
  const std::shared_ptr<OpenedStore> store = watch_.store();
  const std::optional<idem::Record> seen = (*store)->find(asked.key);
  if (!seen || version_of(*seen) != asked.version) return changed_meanwhile(*store, asked.key);
  const std::string command = asked.releases ? "release" : "resolve";
  bool changed = false;
  try {
    changed = change(*store, *seen, asked,
                     {.command = asked.force ? command + " --force" : command,
                      .why = asked.resolve.reason,
                      .who = asked.who,
                      .from = "console of " + settings_.who + " at " + from});
  } catch (const std::exception&) {
    watch_.note_change(asked.key);  // it may have been
    throw;
  }
  watch_.note_change(asked.key);
  if (!changed) return changed_meanwhile(*store, asked.key);
  const std::optional<idem::Record> now = (*store)->find(asked.key);
  return {200, {{"record", now ? to_json(*now, store->now()) : Json(nullptr)}}};
}

Answer ConsoleApi::failed() {
  try {
    throw;
  } catch (const TooEarly& early) {
    return refusal(409, "too_early", early.what());
  } catch (const Ending& ending) {
    switch (ending.code()) {
      case Exit::usage:
        return refusal(400, "usage", ending.what());
      case Exit::absent:
        return refusal(404, "absent", ending.what());
      case Exit::refused:
        return refusal(409, "refused", ending.what());
      case Exit::unknown:
        return refusal(503, "unknown", ending.what());
      case Exit::unwritten:
        return refusal(500, "unwritten", ending.what());
      default:
        return refusal(503, "store", ending.what());
    }
  } catch (const idem::Error& error) {
    const bool is_usage =
        error.code() == idem::Errc::invalid_argument || error.code() == idem::Errc::invalid_key;
    if (is_usage) return refusal(400, "usage", error.what());
    std::cerr << "the store: " << error.what() << ": " << printable(error.detail()) << std::endl;
    const std::string text = std::string("the store: ") + error.what();
    return refusal(503, error.effect_possible() ? "unknown" : "store", text);
  } catch (const std::exception& problem) {
    return refusal(500, "broken", problem.what());
  }
}

}  // namespace idempotencyctl
