/* The life of one record among callers that repeat their calls, lose replies, are paused, fail or die, with copies of
 * their requests arriving at any later time, leases and retentions that end at any moment, a keeper that renews, a
 * purger, and a person who resolves.
 *
 *   -DMODE=take_over | hold | mixed   on_expired_lease of the callers; mixed: caller 0 under hold, the others not
 *   -DCALLERS=2 | 3                   default 2
 *   -DLATE=1                          delayed copies of requests (0: none)
 *   -DLOST=1                          how often a caller's begin is repeated or copied
 *   -DRESOLVES=1                      how often somebody settles
 *   -DLIVES=1                         how often a retention ends
 *   -DMARK=1                          callers under take_over may mark their effect
 *   -DRENEW=1                         leases are renewed
 *   -DTOKEN                           the record is a one-time token, issued and not yet used
 *   -DBUG=<name>                      plants a bug of bugs.pml
 */
#define take_over 0
#define hold 1
#define mixed 2
#ifndef MODE
#define MODE take_over
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef LATE
#define LATE 1
#endif
#ifndef LOST
#define LOST 1
#endif
#ifndef RESOLVES
#define RESOLVES 1
#endif
#ifndef LIVES
#define LIVES 1
#endif
#ifndef MARK
#define MARK 1
#endif
#ifndef RENEW
#define RENEW 1
#endif

#include "store.pml"

#if MODE == mixed
#define own_mode(i) (i == 0)
#else
#define own_mode(i) (MODE == hold)
#endif
#define result_of(i) (10 + i)
#define resolved_result 30

#ifdef TOKEN
bool token_was_good = true;  /* issued, and its life has not ended */
inline begin_(i) {
  begin_issued(i, own_mode(i));
  assert(next_answer != answer_acquired || token_was_good)
}
#else
#define begin_(i) begin(i, own_mode(i))
#endif

/* Requests under way as delayed copies. */
#define no_write 0
#define write_complete 1
#define write_fail 2
#define write_fail_for_good 3
#define write_doubt 4
#define write_release 5
#define write_renew 6
#define write_mark 7
bool late_begin[CALLERS];
byte late_write[CALLERS];
byte late_fence[CALLERS];
byte settled = 0;
byte lives = 0;

inline send_write(i, at, kind) {
  if
  :: kind == write_complete -> complete(i, at, result_of(i))
  :: kind == write_fail -> fail_retryable(i, at)
  :: kind == write_fail_for_good -> fail_permanent(i, at)
  :: kind == write_doubt -> doubt(i, at)
  :: kind == write_release -> release(i, at)
  :: kind == write_renew -> renew(i, at)
  :: kind == write_mark -> mark_effect(i, at)
  fi
}

proctype caller(byte i) {
  byte at = 0;        /* the fence that was given */
  byte repeated = 0;
  byte kind = no_write;
  mtype answer;

  do
  :: d_step { begin_(i); answer = next_answer; at = (next_answer == answer_acquired -> fence : 0) };
     if
     :: answer == answer_acquired -> break
     :: answer == answer_in_progress -> skip       /* asked again later */
     :: answer != answer_acquired -> goto done     /* told; or it has waited as long as it wanted */
     fi
  :: d_step { repeated < LOST -> repeated++; begin_(i) }                     /* the reply is lost */
  :: d_step { LATE && repeated < LOST -> repeated++; late_begin[i] = true }  /* the request is delayed */
#if BUG == takeover_by_read_then_write
  :: d_step { phase == phase_processing && owner != i && lease_out && !mode_hold && !marked -> at = fence + 1 };
     d_step {
       phase = phase_processing; owner = i; fence = at; lease_out = false; mode_hold = own_mode(i); marked = false;
       result = no_result; answer = answer_acquired;
       someone_was_let_in(i)
     };
     break
#endif
  od;

  /* The handler runs. */
  do
  :: d_step { RENEW -> renew(i, at) }
  :: d_step { RENEW && LATE && late_write[i] == no_write -> late_write[i] = write_renew; late_fence[i] = at }
  :: d_step { MARK && !own_mode(i) -> mark_effect(i, at); answer = next_answer };
#if BUG == effect_before_mark_is_stored
     d_step { start_open = true }
#else
     if
     :: answer == answer_stored  /* only now the effect begins */
     :: else -> goto done        /* the lease is lost: the handler is left */
     fi
#endif
  :: kind = write_complete; break
  :: kind = write_fail; break
  :: kind = write_fail_for_good; break
  :: kind = write_doubt; break
  :: kind = write_release; break
  :: goto done  /* the process dies */
  od;

  do
  :: d_step {
       send_write(i, at, kind);
       assert(kind != write_complete || next_answer != answer_stored || result == result_of(i))
     } -> break
  :: d_step { send_write(i, at, kind) }  /* the reply is lost */
  :: d_step { LATE && late_write[i] == no_write -> late_write[i] = kind; late_fence[i] = at }
  :: d_step { kind == write_complete -> kind = write_doubt }  /* out of time */
  :: break  /* the process dies */
  od;
done:
  atomic { at = 0; repeated = 0; kind = no_write; answer = 0 }
}


#ifdef TOKEN
#define RETENTION_ENDED token_was_good = false
#else
#define RETENTION_ENDED skip
#endif

active proctype world() {
end:
  do
  :: d_step { phase == phase_processing && !lease_out -> lease_runs_out() }
  :: d_step { (finished || phase == phase_issued) && !expired && lives < LIVES -> lives++; retention_ends(); RETENTION_ENDED }
  :: d_step { may_be_purged -> purge() }
#if LATE
  :: d_step { late_begin[0] -> late_begin[0] = false; begin_(0) }
  :: d_step { late_begin[1] -> late_begin[1] = false; begin_(1) }
  :: d_step { late_write[0] != no_write -> send_write(0, late_fence[0], late_write[0]); late_write[0] = no_write; late_fence[0] = 0 }
  :: d_step { late_write[1] != no_write -> send_write(1, late_fence[1], late_write[1]); late_write[1] = no_write; late_fence[1] = 0 }
#endif
  od
}

#define open_to_settlement (phase == phase_uncertain || (phase == phase_processing && lease_out))

active proctype resolver() {
end:
  do
  :: d_step { settled < RESOLVES && open_to_settlement -> settled++; look() };
     if
     :: d_step { resolve_success(resolved_result); look_away() }
     :: d_step { resolve_failed(); look_away() }
     :: d_step { resolve_retry(); look_away() }
     fi
  od
}

#if BUG == purge_by_read_then_delete
active proctype careless_purger() {
end:
  do
  :: d_step { finished && expired -> skip }; d_step { purge() }
  od
}
#endif

init {
  atomic {
#ifdef TOKEN
    phase = phase_issued;
#endif
    run caller(0);
    run caller(1);
#if CALLERS == 3
    run caller(2);
#endif
  }
}
