/* Who has the driver open: each client has a lock on a file beside the world's, which goes with its process. The file also
 * says how often each GPU has been reset or lost: handles from before are dead, as a client's are until it begins anew.
 */
#ifndef STANDIN_CLIENTS_H
#define STANDIN_CLIENTS_H

/* Become a client; whoever is one already stays it. */
void client_opens(void);
void client_closes(void);
/* The process number of another client; 0 if there is none. */
int other_client(void);
/* Whether this GPU has been reset or lost since this client opened. */
int handles_died(unsigned gpu);
/* It has been just now. */
void handles_die(unsigned gpu);
#endif
