"""A CA as the fleet has one, and the first contact with an executor."""

import datetime as dt

from contract.executor.harness import PATIENCE, presented
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sandfleet_api.executor.v1 import identity_pb2, identity_pb2_grpc

PEM = serialization.Encoding.PEM


class Authority:
    """A CA as the fleet has one."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a fleet")])
        self.root = self._sign(name, name, self.key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.pem = self.root.public_bytes(PEM)

    def answer(self, request_pem, name=None, key=None):
        """A certificate for a signing request; `name` and `key` make it a wrong one."""
        request = x509.load_pem_x509_csr(request_pem)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if name:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signed = self._sign(request.subject, self.root.subject, key or request.public_key(), names)
        return signed.public_bytes(PEM)

    def _sign(self, subject, issuer, key, extension):
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(minutes=1)).not_valid_after(now + dt.timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(self.key, hashes.SHA256())

    async def sign(self, executor):
        """The first contact; from then on the executor is known by this authority."""
        async with executor.channel_for(await presented(executor)) as channel:
            stub = identity_pb2_grpc.IdentityServiceStub(channel)
            told = {"metadata": (("authorization", f"Bearer {executor.token()}"),), "timeout": PATIENCE}
            asked = await stub.GetSigningRequest(identity_pb2.GetSigningRequestRequest(), **told)
            certificate = self.answer(asked.signing_request_pem)
            request = identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
            await stub.InstallCertificate(request, **told)
        executor.ca = self.pem
        return certificate
