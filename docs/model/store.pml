/* One record as a store keeps it, every operation of a store on it, and the promises as assertions.
 * Included by record.pml, waiting.pml and transaction.pml. What an operation does is read from transitions.pml; the
 * operations here only judge retention and standing, as detail/judge.hpp does, and apply the row. Each operation is
 * to be called inside a d_step: one atomic step of the store. */
#include "bugs.pml"
#include "transitions.pml"

#define nobody 255
#define resolver_token 200
#define no_result 255
#define failed_for_good 254

/* The record. */
mtype phase = phase_absent;
byte owner = nobody;
byte fence = 0;
bool mode_hold = false;   /* written by the one that begins, obeyed by all */
bool marked = false;      /* mark_effect was stored: from then on as under hold */
bool lease_out = false;
bool expired = false;     /* finished and past its retention; still there until it is purged or begun anew */
byte result = no_result;

/* What really happened, kept apart from the record so that a faulty store cannot rewrite it. */
byte let_in = nobody;     /* the last one that was let in, until somebody else settles or the life ends */
byte top = 0;             /* the highest fence of this life */
bool live = false;        /* its lease is running */
bool start_open = false;  /* let in under hold, or effect marked; neither settlement nor known failure since */
byte kept = no_result;    /* the answer that has to be given until its retention ends */

/* A person who settles: what was seen, and whether the record has moved since. */
byte seen_fence = 0;      /* 0: nothing is being looked at */
byte seen_owner = nobody;
mtype seen_phase = phase_absent;
bool seen_marked = false;
bool lease_renewed = false;  /* the deadline is another than the one that was seen */
bool moved = false;          /* what really happened: somebody was told that a write was stored, or was let in */

/* Valid within one d_step only. */
hidden mtype from;
hidden byte own;

inline judge_retention() {
  if
  :: expired -> from = phase_absent
  :: !expired && BUG == unfinished_record_expires && phase == phase_processing && lease_out -> from = phase_absent
  :: else -> from = phase
  fi
}

#if BUG == callers_policy_judges
#define judged_hold(own_mode) (own_mode)
#elif BUG == effect_mark_ignored
#define judged_hold(own_mode) (mode_hold)
#else
#define judged_hold(own_mode) (mode_hold || marked)
#endif

inline blank() {
  phase = phase_absent; owner = nobody; fence = 0; mode_hold = false; marked = false; lease_out = false;
  expired = false; result = no_result
}

inline it_moved() {
  if
  :: seen_fence != 0 -> moved = true
  :: else -> skip
  fi
}

inline look() {
  seen_fence = fence; seen_owner = owner; seen_phase = phase; seen_marked = marked; lease_renewed = false; moved = false
}

inline look_away() {
  seen_fence = 0; seen_owner = nobody; seen_phase = phase_absent; seen_marked = false; lease_renewed = false; moved = false
}

inline stored_answer_stands() {
  assert(kept == no_result || (kept == failed_for_good && phase == phase_failed_permanent) ||
         (kept == result && phase == phase_success))
}

/* Applies the row to the record. */
inline apply_row(caller) {
  if
  :: next_owner == owner_caller -> owner = caller
  :: else -> skip
  fi;
  if
  :: next_fence == fence_first -> fence = 1
  :: next_fence == fence_next -> fence++
  :: else -> skip
  fi;
  if
  :: next_lease != lease_keep -> lease_out = false; lease_renewed = (seen_fence != 0)
  :: else -> skip
  fi;
  phase = next_phase;
  it_moved()
}

inline someone_was_let_in(caller) {
  assert(!start_open);        /* hold: at most one start per settlement or known failure */
  assert(!live);              /* at most one owner at a time */
  assert(kept == no_result);  /* a stored answer is given, not run again */
  assert(let_in != caller);   /* a token is let in once: after its end it never acquires again */
  assert(fence > top);        /* the fence rises with every acquisition */
  let_in = caller; top = fence; live = true; start_open = mode_hold
}

inline apply_begin(caller, own_mode) {
  if
  :: next_answer == answer_acquired && next_owner == owner_caller ->
     apply_row(caller);
     expired = false; mode_hold = own_mode; marked = false; result = no_result;
     someone_was_let_in(caller)
  :: next_answer == answer_acquired && next_owner == owner_keep ->
     apply_row(caller);
     assert(let_in == caller && top == fence);
     live = true
  :: next_answer == answer_uncertain && from == phase_processing ->
     assert(!live);
     apply_row(caller)
  :: else -> skip
  fi;
  assert(next_answer != answer_completed || kept == result);
  stored_answer_stands()
}

inline judge_begin(caller) {
  judge_retention();
  own = (from != phase_absent && owner == caller);
#if BUG == ended_token_acquires_again
  if
  :: phase == phase_failed_retryable -> own = false
  :: else -> skip
  fi
#endif
}

inline begin(caller, own_mode) {
  judge_begin(caller);
  transition_begin(from, own, lease_out, judged_hold(own_mode));
#if BUG == fence_kept_on_takeover
  if
  :: from == phase_processing && next_owner == owner_caller -> next_fence = fence_keep
  :: else -> skip
  fi;
#endif
#if BUG == uncertain_taken_over
  if
  :: from == phase_uncertain -> row(phase_processing, answer_acquired, fence_next, owner_caller, lease_start)
  :: else -> skip
  fi;
#endif
  apply_begin(caller, own_mode)
}

/* The same by the holder of a one-time token. */
inline begin_issued(caller, own_mode) {
  judge_begin(caller);
  transition_begin_issued(from, own, lease_out, judged_hold(own_mode));
#if BUG == unknown_token_admitted
  if
  :: from == phase_absent -> transition_begin(from, own, lease_out, judged_hold(own_mode))
  :: else -> skip
  fi;
#endif
  apply_begin(caller, own_mode)
}

inline judge_write(caller, at) {
  judge_retention();
#if BUG == fence_not_checked
  own = (from != phase_absent && owner == caller)
#elif BUG == owner_not_checked
  own = (from != phase_absent && fence == at)
#else
  own = (from != phase_absent && owner == caller && fence == at)
#endif
}

/* Applies a write that ends the owner's turn. */
inline apply_end(caller, at, with) {
#if BUG == stored_result_overwritten
  if
  :: from == phase_success -> result = with
  :: else -> skip
  fi;
#endif
  if
  :: next_answer == answer_stored ->
     assert(let_in == caller && top == at);  /* only the one that was let in last may write, at its fence */
     if
     :: next_phase != from ->
        apply_row(caller);
        live = false;
        if
        :: phase == phase_success -> result = with; kept = with; start_open = false
        :: phase == phase_failed_permanent -> kept = failed_for_good; start_open = false
        :: phase == phase_failed_retryable -> start_open = false
        :: else -> skip
        fi
     :: else -> skip
     fi
  :: else -> skip
  fi;
  stored_answer_stands()
}

inline complete(caller, at, with) {
  judge_write(caller, at);
#if BUG == complete_without_owner_check
  own = (from != phase_absent);
#endif
  transition_complete(from, own, lease_out, judged_hold(mode_hold));
  apply_end(caller, at, with)
}

inline fail_retryable(caller, at) {
  judge_write(caller, at);
  transition_fail_retryable(from, own, lease_out, judged_hold(mode_hold));
#if BUG == late_failure_replaces_result
  if
  :: from == phase_success -> phase = phase_failed_retryable; result = no_result
  :: else -> skip
  fi;
#endif
  apply_end(caller, at, no_result)
}

inline fail_permanent(caller, at) {
  judge_write(caller, at);
  transition_fail_permanent(from, own, lease_out, judged_hold(mode_hold));
  apply_end(caller, at, no_result)
}

inline doubt(caller, at) {
  judge_write(caller, at);
  transition_doubt(from, own, lease_out, judged_hold(mode_hold));
  apply_end(caller, at, no_result)
}

inline release(caller, at) {
  judge_write(caller, at);
#if BUG == release_without_owner_check
  own = (from != phase_absent);
#endif
  transition_release(from, own, lease_out, judged_hold(mode_hold));
  apply_end(caller, at, no_result)
}

inline renew(caller, at) {
  judge_write(caller, at);
  transition_renew(from, own, lease_out, judged_hold(mode_hold));
#if BUG == renewal_rewrites_the_record
  if
  :: from == phase_processing -> own = true; next_answer = answer_stored; owner = caller; fence = at
  :: else -> skip
  fi;
#endif
#if BUG == renewal_after_the_end
  if
  :: from == phase_failed_retryable && own -> row(phase_processing, answer_stored, fence_keep, owner_keep, lease_start)
  :: else -> skip
  fi;
#endif
  if
  :: next_answer == answer_stored ->
     assert(let_in == caller && top == at);
     assert(from == phase_processing);
     apply_row(caller);
     live = true
  :: else -> skip
  fi
}

inline mark_effect(caller, at) {
  judge_write(caller, at);
  transition_mark_effect(from, own, lease_out, judged_hold(mode_hold));
  if
  :: next_answer == answer_stored ->
     assert(let_in == caller && top == at);
     if
     :: !marked -> marked = true; it_moved()
     :: else -> skip  /* repeated: its owner looks at its lease before it begins the effect */
     fi;
     start_open = true
  :: else -> skip
  fi
}

/* A settlement of the record that was seen; a repeated one is recognised by the resolver's token. */
inline judge_resolve() {
  judge_retention();
#if BUG == resolver_does_not_look_at_the_fence
  own = (from != phase_absent)
#elif BUG == resolver_compares_the_fence_only
  own = (from != phase_absent && fence == seen_fence)
#else
  own = (from != phase_absent && fence == seen_fence && owner == seen_owner && phase == seen_phase &&
         marked == seen_marked && !lease_renewed)
#endif
}

inline apply_resolve(with) {
#if BUG == resolver_leaves_owner
  next_owner = owner_keep; next_fence = fence_keep;
#endif
  if
  :: next_answer == answer_stored ->
     assert(top == seen_fence && !live);
     assert(!moved);  /* what was seen is what is settled */
     apply_row(resolver_token);
     let_in = nobody; top = fence; start_open = false;
     if
     :: phase == phase_success -> result = with; kept = with
     :: phase == phase_failed_permanent -> kept = failed_for_good
     :: else -> skip
     fi
  :: else -> skip
  fi;
  stored_answer_stands()
}

inline resolve_success(with) {
  judge_resolve();
  transition_resolve_success(from, own, lease_out, judged_hold(mode_hold));
  apply_resolve(with)
}

inline resolve_failed() {
  judge_resolve();
  transition_resolve_failed(from, own, lease_out, judged_hold(mode_hold));
  apply_resolve(no_result)
}

inline resolve_retry() {
  judge_resolve();
  transition_resolve_retry(from, own, lease_out, judged_hold(mode_hold));
  apply_resolve(no_result)
}

#define finished (phase == phase_success || phase == phase_failed_retryable || phase == phase_failed_permanent)

inline lease_runs_out() {
  lease_out = true; live = false
}

/* Retention ends: from now on the record is judged as absent, and what was promised for this life is over. */
inline retention_ends() {
  expired = true;
  let_in = nobody; top = 0; kept = no_result
}

#if BUG == purge_takes_unfinished
#define may_be_purged ((finished && expired) || phase == phase_uncertain)
#elif BUG == purge_ignores_retention
#define may_be_purged (finished)
#else
#define may_be_purged (finished && expired)
#endif

inline purge() {
  blank();
  stored_answer_stands()
}
