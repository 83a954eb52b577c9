/* What the API server holds, the writes as they land there, and what fleets and clients know. See claims.pml. */

#ifndef REQUESTS
#define REQUESTS 1
#endif
#ifndef LEADERSHIPS
#define LEADERSHIPS 3
#endif
#ifndef LOSSES
#define LOSSES 1                  /* replies that are lost */
#endif
#ifndef SHRINKS
#define SHRINKS 0
#endif
#ifdef RANDOM_NAME
#define NAMES 2                   /* CodeSandboxes that one request id can come to have */
#else
#define NAMES 1
#endif
#define WARM_PODS 2
#define REPLACEMENT WARM_PODS     /* the pod that the operator makes in place of one that is gone */
#define PODS (WARM_PODS + 1)
#define OBJECTS (REQUESTS * NAMES)
#define NONE 255
#define NO_POD 254                /* the answer "cannot claim: the pool is empty" */

/* ---- What the API server holds ---- */
#define GONE 0
#define WARM 1
#define CLAIMED 2
#define RETIRING 3
byte state[PODS];
byte holder[PODS] = NONE;         /* with `fencing` the claim id: REQUEST/FENCING, one annotation, compared as a whole */
byte fencing[PODS];
#ifdef YOUNG
byte keeper[PODS];                /* number of the fleet that goes on with the claim: a takeover changes the record */
#endif
byte owner[PODS];                 /* UID of the CodeSandbox in its ownerReferences; 0: none */

bool exists[OBJECTS];             /* CodeSandbox i belongs to request id i / NAMES */
byte births[OBJECTS];
byte names[OBJECTS] = NONE;       /* the pod whose UID it names */
byte by[OBJECTS];                 /* fencing of the claim that it was written for */
bool recorded[OBJECTS];           /* its status says that the pod was there, and owned by it */
#define uid(i) (8 * (i) + births[i])
#define is_there(u) ((u) != 0 && exists[(u) / 8] && births[(u) / 8] == (u) % 8)

byte transitions = 1;             /* of the Lease: its fencing number */
byte served = 1;                  /* of the Lease: the last leadership that was through with its inventory */

/* ---- What fleets and clients know ---- */
byte leads[2];                    /* the number under which a fleet thinks that it leads; 0: it does not */
bool serves[2];
#ifdef YOUNG                      /* of each claim: whether it is only its pod, as far as the fleet knows */
typedef Memory { byte pod[REQUESTS] = NONE; bool asked[REQUESTS]; bool young[REQUESTS] };
#else
typedef Memory { byte pod[REQUESTS] = NONE; bool asked[REQUESTS] };
#endif
Memory fleet[2];                  /* claims that a fleet knows, and the streams that clients have open to it */
byte answer[REQUESTS] = NONE;
byte given[REQUESTS] = NONE;      /* the pod, while a client holds it by an answer of the fleet that led */
bool ends[REQUESTS];              /* the client releases, cancels, or is gone and its lease is over */
bool released[REQUESTS];
byte losses = LOSSES;
byte shrinks = SHRINKS;
bool touched;

/* ---- Writes, as they land ---- */
#define DONE 1
#define REFUSED 2
#define LOST 3                    /* no reply */

#ifdef YOUNG
#define keeps(p, e) keeper[p] = e
#else
#define keeps(p, e) skip
#endif

inline bind(p, r, e, reply) {
    if
#ifdef NO_TEST
    :: state[p] != GONE ->
#else
    :: state[p] == WARM ->
#endif
        assert(holder[p] == NONE);                              /* (1) never given to two request ids */
        state[p] = CLAIMED; holder[p] = r; fencing[p] = e; keeps(p, e); reply = DONE
    :: else -> reply = REFUSED
    fi
}

inline create(i, p, e, reply) {
    if
    :: exists[i] -> reply = REFUSED                             /* AlreadyExists */
    :: else -> exists[i] = true; births[i]++; names[i] = p; by[i] = e; recorded[i] = false; reply = DONE
    fi
}

inline delete_object(u) {
    if
    :: is_there(u) -> exists[(u) / 8] = false; names[(u) / 8] = NONE; by[(u) / 8] = 0; recorded[(u) / 8] = false
    :: else -> skip
    fi
}

inline delete_pod(p) {            /* a pod's index is its UID: none is made twice */
    assert(given[0] != p && given[REQUESTS - 1] != p);          /* (6) never taken from the client that holds it */
    state[p] = GONE; holder[p] = NONE; fencing[p] = 0; owner[p] = 0; keeps(p, 0)
}

#ifdef YOUNG
/* Of a young claim: names the version of the pod that carries the record of the fleet that deletes it. */
inline delete_claimed(p, r, e) {
    if
#ifdef DELETE_ANY_VERSION
    :: state[p] == CLAIMED && holder[p] == r -> delete_pod(p)
#else
#ifndef FORGET_OWNER
    /* The object of an earlier leader, which came late: first, since the operator may have put it on record. */
    :: state[p] == CLAIMED && holder[p] == r && keeper[p] == e && owner[p] != 0 -> delete_object(owner[p]); delete_pod(p)
    :: state[p] == CLAIMED && holder[p] == r && keeper[p] == e && owner[p] == 0 -> delete_pod(p)
#else
    :: state[p] == CLAIMED && holder[p] == r && keeper[p] == e -> delete_pod(p)
#endif
#endif
    :: else -> skip
    fi
}
#endif

inline own(p, r, u) {
    if
#ifdef ADOPT_OWNED
    :: state[p] == CLAIMED && holder[p] == r -> owner[p] = u
#else
    :: state[p] == CLAIMED && holder[p] == r && owner[p] == 0 -> owner[p] = u    /* u 0: nothing to own it */
#endif
    :: else -> skip
    fi
}

/* The object of a request id, by its hash. With random names: the one that names this pod, or else a free name. */
inline find(p, r, i) {
    i = r * NAMES;
#ifdef RANDOM_NAME
    if
    :: exists[i] && names[i] != p -> i++
    :: else -> skip
    fi
#endif
}

/* One write that got no reply and is still on the wire: it lands later, or never. */
#define BIND 1
#define CREATE 2
byte late; byte late_pod; byte late_request; byte late_fencing;
inline delay(what, p, r, e) { late = what; late_pod = p; late_request = r; late_fencing = e }

active proctype wire() {
    byte reply, i;
    do
    :: d_step { late == BIND -> bind(late_pod, late_request, late_fencing, reply); delay(0, 0, 0, 0); reply = 0 }
    :: d_step { late == CREATE -> find(late_pod, late_request, i); create(i, late_pod, late_fencing, reply);
                delay(0, 0, 0, 0); reply = 0; i = 0 }
#ifdef WRONG_ORDER
    :: d_step { late == BIND -> delay(0, 0, 0, 0) }
#else
    :: d_step { late != 0 -> delay(0, 0, 0, 0) }
#endif
    od
}
