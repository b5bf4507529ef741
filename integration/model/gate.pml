/* The gate: what package guard counts, asks and waits for. mount.pml and tree.pml
 * include this file; see doc.go for the properties and how to read the model.
 *
 * Roots are numbered: 0 is the root that ends; what 1 is, the including file says. */
#define BIT(x) (1<<(x))

byte cur = 1;                /* the snapshot has the root's name: 1+root, 0: nobody */
bit live[2]; bit rw[2];      /* root.state, root.policy */
bit hid;                     /* the patterns in force hide a name that was shown */
bit gen[2]; byte infl[4];    /* root.gen (its parity, and that it moved), root.inflight of both roots */
bit dead[2];                 /* root.dead is closed */
bit ret[2];                  /* the ending of the root has returned */
bit nret;                    /* the narrowing has returned, and no widening has begun */

/* code: guard.(*root).acquire */
inline acquire(r, g, in) {
  in = 1;
#ifdef M_STATEFIRST
  if :: atomic { !live[r] -> in = 0 } :: atomic { live[r] -> skip } fi;
#endif
  do
  :: in -> g = gen[r];
     infl[r*2+g]++;
     if
#ifndef M_NOREREAD
     :: atomic { gen[r] != g -> infl[r*2+g]-- }
     :: atomic { gen[r] == g -> skip };
#else
     :: skip;
#endif
#ifndef M_STATEFIRST
        if :: atomic { !live[r] -> infl[r*2+g]--; in = 0 } :: atomic { live[r] -> skip } fi;
#endif
        break
     fi
  :: else -> break
  od }

/* code: guard.(*root).release, guard.(*Lease).Done */
inline release(r, g) { infl[r*2+g]-- }

/* code: guard.(*root).drain */
inline drain(r) {
#ifndef M_NODRAIN
  gen[r] = 1-gen[r];
  infl[r*2+1-gen[r]] == 0
#endif
}
